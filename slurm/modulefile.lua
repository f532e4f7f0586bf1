local prefix = "/shared/software/expctl"

-- A module for Lmod: put this file as expctl/VERSION.lua into a folder of MODULEPATH.
help([[expctl: where the time of a training pipeline goes, and which change makes it faster]])
whatis("Name: expctl")
conflict("expctl")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))

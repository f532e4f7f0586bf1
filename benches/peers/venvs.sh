# Shared by run, setup.sh and prepare.sh: source it, do not run it. Needs scripts/common.sh.
# Peers that can live together share a virtual environment; it is named like its file in requirements/.
VENVS=(arrays tiledbsoma streaming merlin pyg neighbors tensorstore slaf)
# graphbolt is set up where it is named: it has a PyTorch of its own, with CUDA's libraries.

# Name of the environment that a peer, or a format of one, is run in; 1 if there is no such peer.
venv_of() { # PEER
  case $1 in
    annbatch|annbatch_gpu|ann_loader|expctl_python|expctl_python_training|h5py_blocks|mapped_collection|row_groups|scdataset|scdl|scdl_by_hand|scipy|torch_copies|torch_ddp) echo arrays;;
    tiledbsoma|soma_rows) echo tiledbsoma;;
    tensorstore) echo tensorstore;;
    streaming) echo streaming;;
    slaf|lance) echo slaf;;
    merlin) echo merlin;;
    pyg_lazy|pyg_perturbation|expctl_python_graph) echo pyg;;
    neighbor_loader) echo neighbors;;
    graphbolt) echo graphbolt;;
    *) return 1;;
  esac
}

venv_folder() { echo "$EXPCTL_CACHE/bench/peers/$1"; } # VENV

# What an environment is made from: it is made anew when that is another.
venv_mark() { # VENV
  local requirements; requirements=$(dirname "${BASH_SOURCE[0]}")/requirements
  # With what is compiled against PyTorch, where something is.
  echo "$TORCH_VERSION $(cat "$requirements/$1.txt" "$requirements/$1_extensions.txt" 2>/dev/null | sha256sum | cut -c1-16)"
}

# The interpreter of an environment that is complete and up to date; 1 if it is not.
venv_python() { # VENV
  local folder; folder=$(venv_folder "$1")
  [ "$(cat "$folder/.complete" 2>/dev/null)" = "$(venv_mark "$1")" ] && cat "$folder/interpreter"
}

# The allocator of the variants named *_jemalloc: the system's, or what setup.sh unpacked; 1 if there is none.
jemalloc_library() {
  local library
  for library in /usr/lib/*/libjemalloc.so.2 /usr/lib64/libjemalloc.so.2 "$(venv_folder jemalloc)"/usr/lib/*/libjemalloc.so.2; do
    if [ -e "$library" ]; then echo "$library"; return; fi
  done
  return 1
}

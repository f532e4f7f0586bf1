"""Makes a stub of a shared library that has only the symbol versions up to given limits: what is linked with it asks for no newer ones.

    stub_library.py SOURCE.so OUT.so PREFIX=LIMIT...

A stub has the names, versions and sizes of the library's symbols, and no code: programs find the real library when they start.
"""

import os
import re
import subprocess
import sys

SECTIONS = {
    "FUNC": (".text", "@function"),
    "IFUNC": (".text", "@function"),
    "TLS": ('.tbss,"awT",@nobits', "@tls_object"),
}


def version_of(text):
    """`GLIBCXX_3.4.22` as ("GLIBCXX", (3, 4, 22)); names without numbers have none."""
    parts = re.fullmatch(r"([A-Za-z_]+?)_([0-9.]+)", text)
    return (parts[1], tuple(map(int, parts[2].split(".")))) if parts else (text, None)


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def symbols(source, limits):
    """The newest version within the limits of each symbol: name to (version, size, type, binding)."""
    found, current = {}, set()
    for line in readelf("--dyn-syms", source).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit() or fields[6] in ("UND", "ABS") or fields[4] == "LOCAL":
            continue
        if "@" not in fields[7]:
            continue
        name, version = re.split("@@?", fields[7])
        if "@@" in fields[7]:
            current.add(name)
        prefix, number = version_of(version)
        if number is None or prefix not in limits or number > limits[prefix]:
            continue
        if name not in found or version_of(found[name][0])[1] < number:
            found[name] = (version, int(fields[2], 0), fields[3], fields[4])
    # Those that only old programs still find stay out: __cpu_model, which is to come from libgcc.a.
    return {name: symbol for name, symbol in found.items() if name in current}


def main():
    source, out, *given = sys.argv[1:]
    limits = {prefix: tuple(map(int, limit.split("."))) for prefix, limit in (word.split("=") for word in given)}
    soname = re.search(r"SONAME.*\[(.*)\]", readelf("-d", source))[1]
    assembly, versions = [], {}
    for name, (version, size, kind, binding) in sorted(symbols(source, limits).items()):
        versions.setdefault(version, []).append(name)
        data = '.data.rel.ro,"aw",@progbits' if name.startswith("_ZT") else '.bss,"aw",@nobits'
        section, kind_name = SECTIONS.get(kind, (data, "@object"))
        is_code = section == ".text"
        assembly += [
            section if is_code else f".section {section}",
            "" if is_code else ".balign 16",
            f".globl {name}" if binding == "GLOBAL" else f".weak {name}",
            f".type {name},{kind_name}",
            f"{name}: .zero {1 if is_code else max(size, 1)}",
            f".size {name},{size}",
        ]
    assembly.append('.section .note.GNU-stack,"",@progbits')
    with open(out + ".s", "w") as file:
        file.write("\n".join(assembly) + "\n")
    with open(out + ".map", "w") as file:
        for i, version in enumerate(sorted(versions, key=version_of)):
            names = " ".join(f'"{name}";' for name in versions[version])
            file.write(f"{version} {{ global: {names} {'local: *;' if i == 0 else ''} }};\n")
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-o", out, out + ".s", f"-Wl,-soname,{soname}", f"-Wl,--version-script,{out}.map"],
        check=True,
    )
    os.remove(out + ".s")
    os.remove(out + ".map")


main()

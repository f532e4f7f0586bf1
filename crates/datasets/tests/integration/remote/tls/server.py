"""Two servers on 127.0.0.1 for one file: over TLS, and in plain HTTP.

    server.py FILE CERTIFICATE LOG

/here is the file; /to-tls and /to-plain lead to /here of the other or the same server. Prints the ports, TLS first, and writes each request to
the plain server into LOG. Ends with its standard input.
"""

import http.server
import re
import ssl
import sys
import threading

file, certificate, log = sys.argv[1:]
content = open(file, "rb").read()
ports = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        if not self.server.secure:
            with open(log, "a") as seen:
                seen.write(self.path + "\n")
        origin = {"/to-tls.h5ad": f"https://127.0.0.1:{ports['tls']}", "/to-plain.h5ad": f"http://127.0.0.1:{ports['plain']}"}
        if self.path in origin:
            self.send_response(302)
            self.send_header("Location", origin[self.path] + "/here.h5ad")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        body = content[int(wanted[1]) : int(wanted[2]) + 1] if wanted else content
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {wanted[1]}-{int(wanted[1]) + len(body) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_GET = do_HEAD


for name in ["tls", "plain"]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.secure = name == "tls"
    if server.secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    ports[name] = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()

print(ports["tls"], ports["plain"], flush=True)
sys.stdin.read()

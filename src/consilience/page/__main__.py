"""`python -m consilience.page PATH SOCKET`: the page beside a command, on a socket that the command has opened."""

import socket
import sys
from pathlib import Path

from consilience.page.access import Access
from consilience.page.serving import serve

if __name__ == "__main__":
    serve(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), Access(), follows_parent=True)

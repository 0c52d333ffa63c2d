"""A Hub on loopback that real huggingface_hub talks to: two servers, one for the API and one for the bytes.

Where the shape of each answer comes from is said beside it: "client" is huggingface_hub 2.4.0, the version installed
for the tests, by file and function; "docs" is https://huggingface.co/docs/hub/api and the OpenAPI description it leads
to. The second server stands for the CDN that the Hub sends people to for files in LFS or Xet: it is another origin
(another port), knows no tokens, and answers signed addresses only.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fakes.repositories import Commit, Content, Repository

SIGNATURE = "Signature=opens-it-to-everybody"
_PIECE_BYTES = 1 << 20


@dataclass
class Seen:
    """One request, as it came in."""

    server: str
    method: str
    path: str
    query: str
    range: str
    authorization: str


@dataclass
class Trouble:
    """What the servers are asked to get wrong. Lists are used up from the front."""

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Answered to the next requests for the API instead of what was asked for, such as 429."""
    always: tuple[int, dict[str, str]] | None = None
    cut_after: list[int] = field(default_factory=list)
    """The next transfers of the CDN end after so many bytes."""
    flip_byte: bool = False
    """The CDN sends the right number of bytes, one of them wrong."""
    is_mute: bool = False
    """The CDN answers ranges with none of their bytes."""
    no_ranges: bool = False
    """The CDN sends whole files with 200."""
    says: Callable[[str], bytes | None] = lambda path: None
    """Another body for an API path."""
    delay_s: float = 0.0


class FakeHub:
    """The two servers; use it through ``served``."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.renamed: dict[str, str] = {}
        self.members = {"hf_goodtoken"}
        """Tokens that may read gated and private repositories."""
        self.trouble = Trouble()
        self.seen: list[Seen] = []
        self.bytes_sent = 0
        self.lock = threading.Lock()
        self.api = _Server(self, "api", _Api)
        self.cdn = _Server(self, "cdn", _Cdn)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.api.server_port}"

    def repository(self, name: str, kind: str = "model") -> Repository:
        return self.repositories.setdefault((kind, name), Repository(name=name, kind=kind))

    def paths(self, server: str = "api") -> list[str]:
        """Method and path of every request so far."""
        return [f"{one.method} {one.path}" for one in self.seen if one.server == server]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: FakeHub, name: str, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.hub = hub
        self.name = name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away early is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    @property
    def hub(self) -> FakeHub:
        return self.server.hub

    def log_message(self, *args: Any) -> None:
        pass

    def note(self) -> urllib.parse.SplitResult:
        parts = urllib.parse.urlsplit(self.path)
        seen = Seen(
            server=self.server.name,
            method=self.command,
            path=urllib.parse.unquote(parts.path),
            query=parts.query,
            range=self.headers.get("Range", ""),
            authorization=self.headers.get("Authorization", ""),
        )
        with self.hub.lock:
            self.hub.seen.append(seen)
        time.sleep(self.hub.trouble.delay_s)
        return parts

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.pop("Content_Length", str(len(body))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str, message: str, **headers: str) -> None:
        """client: utils/_http.py, hf_raise_for_status: the two headers decide; the body repeats the message."""
        body = json.dumps({"error": message}).encode()
        coded = {"X_Error_Code": code} if code else {}
        self.answer(
            status, body, Content_Type="application/json", X_Error_Message=message, **coded, **headers
        )

    def send_content(self, found: Content, headers: dict[str, str], *, is_cdn: bool) -> None:
        trouble = self.hub.trouble
        start, end, status = 0, found.size, 200
        asked = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", self.headers.get("Range", ""))
        if asked and not (trouble.no_ranges and is_cdn):
            start, end, status = int(asked[1]), min(int(asked[2] or found.size) + 1, found.size), 206
            if start >= found.size:
                self.answer(416, Content_Range=f"bytes */{found.size}")
                return
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
        if is_cdn and trouble.is_mute:
            end = start
        with self.hub.lock:
            stop = trouble.cut_after.pop(0) if is_cdn and trouble.cut_after else found.size
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(end - start), "Accept-Ranges": "bytes"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        last = min(end, start + stop)
        for position in range(start, last, _PIECE_BYTES):
            piece = found.read(position, min(position + _PIECE_BYTES, last))
            if trouble.flip_byte and is_cdn and position == start:
                piece = piece[:-1] + bytes([piece[-1] ^ 1])
            # Before it is sent: whoever has it may look at once.
            with self.hub.lock:
                self.hub.bytes_sent += len(piece)
            self.wfile.write(piece)
        self.close_connection = last < end


class _Api(_Handler):
    """``/api/…`` and ``/…/resolve/…``."""

    def do_GET(self) -> None:
        parts = self.note()
        with self.hub.lock:
            waiting = self.hub.trouble.answers
            given = waiting.pop(0) if waiting else self.hub.trouble.always
        if given is not None:
            self.answer(given[0], b"{}", **given[1])
            return
        path = urllib.parse.unquote(parts.path)
        body = self.hub.trouble.says(path)
        if body is not None:
            self.answer(200, body, Content_Type="application/json")
            return
        found = re.fullmatch(
            r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/(revision|tree|commits|paths-info)/([^/]+))?(/.*)?",
            parts.path,
        )
        if found:
            self.about(found[1], found[2], found[3] or "revision", urllib.parse.unquote(found[4] or "main"))
            return
        resolved = re.fullmatch(r"(/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", parts.path)
        if resolved:
            kind = "dataset" if resolved[1] else "model"
            self.resolve(
                kind, resolved[2], urllib.parse.unquote(resolved[3]), urllib.parse.unquote(resolved[4])
            )
            return
        self.refuse(404, "", "Sorry, we can't find the page you are looking for.")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def permitted(self, kind: str, name: str) -> Repository | None:
        """The repository; else the refusal is sent."""
        if name in self.hub.renamed:
            # docs: a moved repository redirects; client: _httpx2_follow_hub_redirects_with_backoff.
            to = self.path.replace(name, self.hub.renamed[name], 1)
            self.read_body()
            self.answer(307, b"Temporary Redirect", Location=to)
            return None
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.hub.members:
            self.refuse(401, "", "Invalid credentials in Authorization header")
            return None
        found = self.hub.repositories.get((kind, name))
        if found is None or (found.private and token not in self.hub.members):
            # client: hf_raise_for_status: missing and private are told apart by nobody; 401 without a token.
            self.refuse(
                404 if token else 401, "RepoNotFound", "Repository not found" if token else "Invalid username"
            )
            return None
        return found

    def about(self, kind: str, name: str, what: str, revision: str) -> None:
        repository = self.permitted(kind, name)
        if repository is None:
            return
        body = self.read_body()
        commit = repository.at(revision)
        if commit is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if what == "revision":
            self.json(_information(repository, commit))
        elif what == "tree":
            self.tree(repository, commit, int(query.get("cursor", ["0"])[0]))
        elif what == "paths-info":
            # client: hf_api.py, get_paths_info: a form with `paths` many times, and `expand`.
            form = urllib.parse.parse_qs(body.decode())
            expand = form.get("expand", ["false"])[0].lower() == "true"
            self.json(
                [
                    _entry(repository, commit, path, expand=expand)
                    for path in form["paths"]
                    if path in commit.files
                ]
            )
        else:
            self.refuse(404, "", "not part of this fake")

    def tree(self, repository: Repository, commit: Commit, start: int) -> None:
        """client: hf_api.py, list_repo_tree, and utils/_pagination.py: 1,000 entries a page, `Link` to the next."""
        entries: list[dict[str, object]] = [
            {"type": "directory", "oid": hashlib.sha1(folder.encode()).hexdigest(), "size": 0, "path": folder}
            for folder in sorted({path.rpartition("/")[0] for path in commit.files} - {""})
        ]
        entries += [_entry(repository, commit, path, expand=False) for path in sorted(commit.files)]
        page = entries[start : start + 1_000]
        headers = {}
        if start + 1_000 < len(entries):
            address = f"{self.hub.endpoint}{urllib.parse.urlsplit(self.path).path}"
            headers["Link"] = f'<{address}?recursive=true&cursor={start + 1_000}>; rel="next"'
        self.json(page, **headers)

    def resolve(self, kind: str, name: str, revision: str, path: str) -> None:
        repository = self.permitted(kind, name)
        if repository is None:
            return
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repository.gated and token not in self.hub.members:
            # client: hf_raise_for_status, GatedRepo; docs: models-gated: 401 unknown, 403 known without access.
            self.refuse(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted.")
            return
        commit = repository.at(revision)
        if commit is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        if path not in commit.files:
            self.refuse(404, "EntryNotFound", "Entry not found", X_Repo_Commit=commit.id)
            return
        found = commit.files[path]
        # client: constants.py for the names of the headers; file_download.py, get_hf_file_metadata.
        headers = {"X-Repo-Commit": commit.id}
        if not found.is_lfs:
            self.send_content(found, headers | {"ETag": f'"{found.oid}"'}, is_cdn=False)
            return
        xet = hashlib.sha256(b"xet" + found.oid.encode()).hexdigest()
        refresh = f"{self.hub.endpoint}/api/{kind}s/{name}/xet-read-token/{commit.id}"
        place = f"http://127.0.0.1:{self.hub.cdn.server_port}/{kind}/{name}/{commit.id}/{urllib.parse.quote(path)}"
        headers |= {
            "X-Linked-Size": str(found.size),
            "X-Linked-ETag": f'"{found.sha256}"',
            # client: utils/_xet.py, parse_xet_file_data_from_response.
            "X-Xet-Hash": xet,
            "Link": f'<{refresh}>; rel="xet-auth", <{place}>; rel="xet-reconstruction-info"',
            "Location": f"{place}?{SIGNATURE}",
        }
        self.send_response(302)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def json(self, value: object, **headers: str) -> None:
        self.answer(200, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))


class _Cdn(_Handler):
    """Signed addresses of files in LFS."""

    def do_GET(self) -> None:
        parts = self.note()
        if parts.query != SIGNATURE or self.headers.get("Authorization"):
            self.answer(403, b"AccessDenied")
            return
        kind, owner, name, commit, path = urllib.parse.unquote(parts.path).lstrip("/").split("/", 4)
        found = self.hub.repositories[kind, f"{owner}/{name}"].at(commit)
        assert found is not None
        self.send_content(found.files[path], {"ETag": '"cdn"'}, is_cdn=True)

    def do_HEAD(self) -> None:
        self.do_GET()


def _information(repository: Repository, commit: Commit) -> dict[str, object]:
    """client: hf_api.py, ModelInfo and DatasetInfo."""
    return {
        "_id": "65a0000000000000000000a0",
        "id": repository.name,
        "sha": commit.id,
        "author": repository.name.partition("/")[0],
        "lastModified": commit.date,
        "createdAt": "2025-12-31T00:00:00.000Z",
        "private": repository.private,
        "gated": "auto" if repository.gated else False,
        "disabled": False,
        "downloads": 1,
        "likes": 0,
        "tags": ["gguf"],
        "siblings": [{"rfilename": path} for path in sorted(commit.files)],
    }


def _entry(repository: Repository, commit: Commit, path: str, *, expand: bool) -> dict[str, object]:
    """client: hf_api.py, RepoFile; for a file in LFS, `lfs.oid` is its sha256 and `oid` the pointer's."""
    found = commit.files[path]
    entry: dict[str, object] = {"type": "file", "oid": found.oid, "size": found.size, "path": path}
    if found.is_lfs:
        entry["lfs"] = {"oid": found.sha256, "size": found.size, "pointerSize": len(found.pointer)}
        entry["xetHash"] = hashlib.sha256(b"xet" + found.oid.encode()).hexdigest()
    if expand:
        last = repository.last_change(path, commit)
        entry["lastCommit"] = {"id": last.id, "title": last.title, "date": last.date}
        entry["securityFileStatus"] = {
            "status": "safe",
            "avScan": None,
            "pickleImportScan": None,
        }
    return entry


@contextmanager
def served() -> Iterator[FakeHub]:
    """A Hub without repositories, answering until the end of the block."""
    hub = FakeHub()
    threads = [
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        for server in (hub.api, hub.cdn)
    ]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server in (hub.api, hub.cdn):
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()

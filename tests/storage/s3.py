"""An S3 server in this process, its requests counted."""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
from moto.server import ThreadedMotoServer

from tests.storage.world import Where

BUCKET = "omnigraph-tests"


class _Counter(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


@dataclass
class Server:
    """A running server with one bucket."""

    options: dict[str, str]
    _requests: _Counter

    @property
    def requests(self) -> int:
        """How many requests it has answered."""
        return self._requests.count

    def place(self) -> Where:
        """An unused place for a graph."""
        return Where(f"s3://{BUCKET}/{uuid.uuid4().hex}.omni", self.options)


@contextmanager
def serve() -> Iterator[Server]:
    """Run a server until the block ends."""
    log = logging.getLogger("werkzeug")
    counter = _Counter()
    log.setLevel(logging.INFO)
    log.addHandler(counter)
    log.propagate = False
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "aws_endpoint": f"http://{host}:{port}",
            "allow_http": "true",
            "aws_region": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test1234",
        }
        boto3.client(
            "s3",
            endpoint_url=options["aws_endpoint"],
            aws_access_key_id="test",
            aws_secret_access_key="test1234",
            region_name="us-east-1",
        ).create_bucket(Bucket=BUCKET)
        yield Server(options, counter)
    finally:
        server.stop()
        log.removeHandler(counter)

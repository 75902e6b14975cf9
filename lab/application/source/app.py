"""A WSGI application: /work?cpu=US&wait=US takes so much CPU time, and then waits."""
import time
from urllib.parse import parse_qs


def app(environ, start_response):
    asked = parse_qs(environ["QUERY_STRING"])
    cpu = int(asked.get("cpu", ["0"])[0]) / 1e6
    wait = int(asked.get("wait", ["0"])[0]) / 1e6
    end = time.thread_time() + cpu
    while time.thread_time() < end:
        pass
    if wait:
        time.sleep(wait)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]

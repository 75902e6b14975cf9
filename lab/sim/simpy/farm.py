"""The farm of `proffer-lab sim --farm B:hom --policies single` in SimPy 4: 128
one-core FIFO servers with a backlog of 64, one chosen at random, every hop
uniform(0.1, 1) ms. Prints one JSON object: mean_ms, requests, seconds of CPU."""

import json
import random
import sys
import time

import simpy

SERVERS, BACKLOG, MEAN_MS = 128, 64, 500.0


def hop(rng):
    return rng.uniform(0.1, 1.0)


def request(env, rng, servers, service_ms, times, counts):
    """Client → LB → server, SYN-ACK, data → LB → server, served, reply."""
    start = env.now
    server = rng.choice(servers)
    yield env.timeout(hop(rng) + hop(rng))
    if len(server.queue) >= BACKLOG:
        return
    yield env.timeout(hop(rng))
    yield env.timeout(hop(rng) + hop(rng))
    with server.request() as turn:
        yield turn
        yield env.timeout(service_ms)
    yield env.timeout(hop(rng))
    if counts:
        times.append(env.now - start)


def run(requests, rho, seed):
    rng = random.Random(seed)
    env = simpy.Environment()
    servers = [simpy.Resource(env, capacity=1) for _ in range(SERVERS)]
    times = []
    between_ms = MEAN_MS / (rho * SERVERS)

    def arrivals():
        for i in range(requests):
            yield env.timeout(rng.expovariate(1 / between_ms))
            counts = requests // 4 <= i < 3 * requests // 4
            env.process(request(env, rng, servers, rng.expovariate(1 / MEAN_MS), times, counts))

    env.process(arrivals())
    env.run()
    return sum(times) / len(times)


if __name__ == "__main__":
    requests, rho, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    begin = time.process_time()
    mean_ms = run(requests, rho, seed)
    print(json.dumps({"mean_ms": mean_ms, "requests": requests, "seconds": time.process_time() - begin}))

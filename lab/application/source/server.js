// /work?cpu=US&wait=US takes so much CPU time, and then waits for the server behind, or, with
// "timer" as argument, for a timer.
const http = require("http");
const [address, port, behind, how] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true });

function burn(us) {
  const spent = () => { const u = process.cpuUsage(); return u.user + u.system; };
  const end = spent() + us;
  while (spent() < end);
}

const server = http.createServer((request, answer) => {
  const asked = new URL(request.url, "http://a").searchParams;
  burn(Number(asked.get("cpu")));
  const wait = Number(asked.get("wait"));
  const done = () => answer.end("ok");
  if (!wait) return done();
  if (how === "timer") return setTimeout(done, wait / 1000);
  http.get(`http://${behind}/?wait=${wait}`, { agent }, (r) => r.resume().on("end", done));
});
server.keepAliveTimeout = 3600e3;
server.listen(Number(port), address, 1024);

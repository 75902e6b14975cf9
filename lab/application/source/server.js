// /work?cpu=US&wait=US takes so much CPU time, and then waits for the server behind, or, with
// "timer" as argument, for a timer. The last argument is the path of a load page.
const fs = require("fs");
const http = require("http");
const [address, port, behind, how, page] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true });

// report writes the requests in progress on the page: the time (CLOCK_MONOTONIC, ns) at offset 8, and
// the number at 16.
const file = fs.openSync(page, "r+");
const word = Buffer.alloc(12);
let inProgress = 0;

function report(change) {
  inProgress += change;
  word.writeBigUInt64LE(process.hrtime.bigint(), 0);
  word.writeUInt32LE(inProgress, 8);
  fs.writeSync(file, word, 0, word.length, 8);
}
setInterval(report, 100, 0);

function burn(us) {
  const spent = () => { const u = process.cpuUsage(); return u.user + u.system; };
  const end = spent() + us;
  while (spent() < end);
}

// inSlices lets the event loop read other requests meanwhile.
function inSlices(us, done) {
  if (us <= 0) return done();
  burn(Math.min(us, 500));
  setImmediate(inSlices, us - 500, done);
}

const server = http.createServer((request, answer) => {
  report(1);
  answer.on("close", () => report(-1));
  const asked = new URL(request.url, "http://a").searchParams;
  const cpu = Number(asked.get("cpu"));
  const wait = Number(asked.get("wait"));
  const done = () => answer.end("ok");
  if (how === "timer") return inSlices(cpu, wait ? () => setTimeout(done, wait / 1000) : done);
  burn(cpu);
  if (!wait) return done();
  http.get(`http://${behind}/?wait=${wait}`, { agent }, (r) => r.resume().on("end", done));
});
server.keepAliveTimeout = 3600e3;
server.listen(Number(port), address, 1024);

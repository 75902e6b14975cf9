import com.sun.net.httpserver.HttpServer;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** /work?cpu=US&wait=US takes so much CPU time, and then sleeps. A pool of 32 threads answers. */
class Server {
    static long number(String query, String name) {
        for (String part : (query == null ? "" : query).split("&"))
            if (part.startsWith(name + "=")) return Long.parseLong(part.substring(name.length() + 1));
        return 0;
    }

    public static void main(String[] args) throws Exception {
        var clock = ManagementFactory.getThreadMXBean();
        var server = HttpServer.create(new InetSocketAddress(args[0], Integer.parseInt(args[1])), 1024);
        server.createContext("/", request -> {
            String query = request.getRequestURI().getQuery();
            long end = clock.getCurrentThreadCpuTime() + 1000 * number(query, "cpu");
            while (clock.getCurrentThreadCpuTime() < end) { }
            long wait = number(query, "wait");
            if (wait > 0)
                try { Thread.sleep(wait / 1000, (int) (wait % 1000) * 1000); } catch (InterruptedException e) { return; }
            byte[] answer = "ok".getBytes();
            request.sendResponseHeaders(200, answer.length);
            try (var body = request.getResponseBody()) { body.write(answer); }
        });
        server.setExecutor(Executors.newFixedThreadPool(32));
        server.start();
    }
}

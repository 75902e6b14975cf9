import com.sun.net.httpserver.HttpServer;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.Executors;

/**
 * /work?cpu=US&wait=US takes so much CPU time, and then sleeps. A pool of 32 threads answers. The last
 * argument is the path of a load page.
 */
class Server {
    static MappedByteBuffer page;
    static int inProgress;

    /** Writes the requests in progress on the page, and then the time: System.nanoTime is CLOCK_MONOTONIC. */
    static synchronized void report(int change) {
        inProgress += change;
        page.putInt(16, inProgress);
        page.putLong(8, System.nanoTime());
    }

    static void map(String path) throws Exception {
        try (var file = FileChannel.open(Path.of(path), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            page = file.map(FileChannel.MapMode.READ_WRITE, 0, 4096);
            page.order(ByteOrder.nativeOrder());
        }
        new java.util.Timer(true).schedule(new java.util.TimerTask() {
            public void run() { report(0); }
        }, 0, 100);
    }

    static void work(String query, java.lang.management.ThreadMXBean clock) {
        long end = clock.getCurrentThreadCpuTime() + 1000 * number(query, "cpu");
        while (clock.getCurrentThreadCpuTime() < end) { }
        long wait = number(query, "wait");
        if (wait > 0)
            try { Thread.sleep(wait / 1000, (int) (wait % 1000) * 1000); } catch (InterruptedException e) { }
    }

    static long number(String query, String name) {
        for (String part : (query == null ? "" : query).split("&"))
            if (part.startsWith(name + "=")) return Long.parseLong(part.substring(name.length() + 1));
        return 0;
    }

    public static void main(String[] args) throws Exception {
        map(args[2]);
        var clock = ManagementFactory.getThreadMXBean();
        var server = HttpServer.create(new InetSocketAddress(args[0], Integer.parseInt(args[1])), 1024);
        server.createContext("/", request -> {
            report(1);
            work(request.getRequestURI().getQuery(), clock);
            byte[] answer = "ok".getBytes();
            report(-1);
            request.sendResponseHeaders(200, answer.length);
            try (var body = request.getResponseBody()) { body.write(answer); }
        });
        server.setExecutor(Executors.newFixedThreadPool(32));
        server.start();
    }
}

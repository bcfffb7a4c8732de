import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URLEncoder;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A lock of the spindle agent of this machine, as docs/agent.md describes it. Act only while {@link #still} is true, and close it
 * only when the work has returned: another program may hold the lock immediately.
 */
public final class Held implements AutoCloseable {
    /** The lock was not acquired: busy, timeout, already-held and so on. */
    @SuppressWarnings("serial")
    public static final class NotAcquired extends IOException {
        public final String code;

        NotAcquired(String code, String message) {
            super(message);
            this.code = code;
        }
    }

    /** Another program may hold the lock. */
    @SuppressWarnings("serial")
    public static final class Lost extends IOException {
        Lost(String message) {
            super(message);
        }
    }

    private static final String SOCKET =
        Objects.requireNonNullElse(System.getenv("SPINDLE_AGENT"), "/run/spindle/agent.sock");

    /** The token of this term, which is larger than the tokens of all earlier terms. */
    public final long token;

    /** The line "held", for a JSON library: it has the fence. */
    public final String line;

    private final Connection connection = new Connection();
    private final Clocks asked;
    private String id = "";
    private long distance = -1; // between our readings before and after the agent's; -1: the agent has other clocks
    private volatile Clocks until = new Clocks(0, 0);
    private volatile String lost = "its time is over";
    private volatile boolean stopping;
    private boolean released;

    /** Acquires a mutex. A null wait waits forever, and a wait of zero does not wait. */
    public static Held lock(String name, Duration wait) throws IOException {
        return acquire("locks?name=" + URLEncoder.encode(name, UTF_8) + (wait == null ? "" : "&wait=" + wait.toMillis() + "ms"));
    }

    /** Asks for a lock of any kind, such as {@code semaphores?name=a&slots=5}. */
    public static Held acquire(String request) throws IOException {
        return new Held(request);
    }

    private Held(String request) throws IOException {
        boolean held = false;
        try {
            asked = Clocks.read();
            if (connection.send("POST /v1/" + request) != 200) {
                String body = connection.rest();
                throw new NotAcquired(text(body, "code"), body);
            }
            line = decided();
            token = number(line, "token", 0);
            held = true;
        } finally {
            if (!held) {
                connection.close();
            }
        }
        Thread follower = new Thread(this::follow, "spindle " + request);
        follower.setDaemon(true);
        follower.start();
    }

    /** Whether the program may act now. It only compares clocks, and sends no request. */
    public boolean still() {
        return Clocks.read().before(until);
    }

    /** Throws Lost unless the program may act now. Call it right before each effect. */
    public void check() throws Lost {
        if (!still()) {
            throw new Lost("another program may hold the lock: " + lost);
        }
    }

    /** Whether the agent has asked for the lock. It is still held: complete the work, then close it. */
    public boolean stopping() {
        return stopping;
    }

    /** Releases the lock. Throws Lost if the lock had already been lost. */
    @Override
    public void close() throws IOException {
        synchronized (this) {
            if (released) {
                return;
            }
            released = true;
            end("it was released");
        }
        try (connection; Connection c = new Connection()) { // the agent answers before the stream is closed
            int status = c.send("POST /v1/holds/" + id + "/release");
            switch (status) {
                case 200, 202 -> { }
                case 410 -> throw new Lost(c.rest());
                default -> throw new IOException("not released, so that it expires: " + c.rest());
            }
        }
    }

    private String decided() throws IOException {
        for (String next; (next = connection.next()) != null; ) {
            String event = take(next);
            switch (event) {
                case "held" -> {
                    return next;
                }
                case "timeout", "done" -> throw new NotAcquired(event, next);
                case "refused" -> throw new NotAcquired(text(next, "reason"), next);
                default -> { }
            }
        }
        throw new IOException("the agent has ended: ask again");
    }

    private void follow() {
        try {
            for (String next; (next = connection.lines.readLine()) != null; ) {
                take(next);
            }
        } catch (IOException e) {
            // The lock is released, or the agent has ended. In that case, the lock is held until the last time promised.
        }
    }

    private String take(String next) throws IOException {
        String event = text(next, "event");
        switch (event) {
            case "hello" -> {
                id = text(next, "hold");
                distance = Clocks.in(next, "now").between(asked, Clocks.read());
            }
            case "held", "until" -> extend(next);
            case "stop" -> stopping = true;
            case "lost" -> end(text(next, "reason"));
            default -> { }
        }
        return event;
    }

    private void extend(String next) throws IOException {
        if (distance >= 0) {
            promise(Clocks.in(next, "until").plus(-distance));
            return;
        }
        Clocks before = Clocks.read();
        try (Connection c = new Connection()) {
            int status = c.send("GET /v1/holds/" + id);
            long left = number(c.rest(), "left_ms", 0);
            if (status == 200 && left > 0) {
                promise(before.plus(left));
            }
        } catch (IOException e) {
            if (text(next, "event").equals("held")) {
                throw e; // after an "until", the lock is held until the last time promised
            }
        }
    }

    private synchronized void promise(Clocks to) {
        if (!released) {
            until = to;
        }
    }

    private synchronized void end(String why) {
        lost = why;
        until = new Clocks(0, 0);
    }

    /** System.nanoTime is CLOCK_MONOTONIC on Linux. Java can't read CLOCK_BOOTTIME. */
    private record Clocks(long monotonic, long unix) {
        static Clocks read() {
            return new Clocks(Math.floorDiv(System.nanoTime(), 1_000_000L), System.currentTimeMillis());
        }

        static Clocks in(String json, String field) {
            Matcher m = Pattern.compile("\"" + field + "\":(\\{[^{}]*\\})").matcher(json);
            String reading = m.find() ? m.group(1) : "";
            return new Clocks(number(reading, "monotonic_ms", -1), number(reading, "unix_ms", -1));
        }

        boolean before(Clocks end) {
            return monotonic < end.monotonic && unix < end.unix;
        }

        Clocks plus(long ms) {
            return new Clocks(monotonic + ms, unix + ms);
        }

        /** Returns the distance between two readings, or -1 if it is too long or this one is not between them. */
        long between(Clocks first, Clocks last) {
            long apart = Math.max(last.monotonic - first.monotonic, last.unix - first.unix);
            boolean lies = first.monotonic <= monotonic && monotonic <= last.monotonic && first.unix <= unix && unix <= last.unix;
            return lies && apart <= 100 ? apart : -1;
        }
    }

    // Regular expressions suffice for these fields of the agent's lines: the agent writes JSON without spaces, a quotation mark
    // within a string has a backslash before it, and no field of these names comes earlier in another object.

    private static String text(String json, String field) {
        Matcher m = Pattern.compile("\"" + field + "\":\"([^\"\\\\]*)\"").matcher(json);
        return m.find() ? m.group(1) : "";
    }

    private static long number(String json, String field, long otherwise) {
        Matcher m = Pattern.compile("\"" + field + "\":(\\d+)").matcher(json);
        return m.find() ? Long.parseLong(m.group(1)) : otherwise;
    }

    /** One request and its response, in HTTP/1.0: without chunks. */
    private static final class Connection implements AutoCloseable {
        private static final ScheduledExecutorService ALARMS = Executors.newSingleThreadScheduledExecutor(run -> {
            Thread thread = new Thread(run, "spindle alarms");
            thread.setDaemon(true);
            return thread;
        });

        final SocketChannel channel = SocketChannel.open(UnixDomainSocketAddress.of(SOCKET));
        final BufferedReader lines = new BufferedReader(new InputStreamReader(Channels.newInputStream(channel), UTF_8));

        Connection() throws IOException { }

        /** Returns the status of the response. */
        int send(String request) throws IOException {
            ByteBuffer head = UTF_8.encode(request + " HTTP/1.0\r\n\r\n");
            while (head.hasRemaining()) {
                channel.write(head);
            }
            String status = next();
            for (String header = status; header != null && !header.isEmpty(); ) {
                header = next();
            }
            if (status == null) {
                throw new IOException("the agent has ended: ask again");
            }
            return Integer.parseInt(status.split(" ")[1]);
        }

        /** Returns the next line. The agent sends one every 5 s. If it is silent for 15 s, the connection is closed. */
        String next() throws IOException {
            var alarm = ALARMS.schedule(() -> {
                channel.close();
                return null;
            }, 15, SECONDS);
            try {
                return lines.readLine();
            } finally {
                alarm.cancel(false);
            }
        }

        String rest() throws IOException {
            StringBuilder all = new StringBuilder();
            for (String next; (next = next()) != null; ) {
                all.append(next);
            }
            return all.toString();
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }
}

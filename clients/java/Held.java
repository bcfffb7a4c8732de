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
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.locks.LockSupport;
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
        private final long after; // in how many seconds to ask again; 0: do not

        NotAcquired(String code, String message, long after) {
            super(message);
            this.code = code;
            this.after = after;
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
        return acquire("locks?name=" + URLEncoder.encode(name, UTF_8), wait);
    }

    /**
     * Asks for a lock of any kind, such as {@code semaphores?name=a&slots=5}. While this program has too many holds, it asks again
     * when the agent says so.
     */
    public static Held acquire(String request, Duration wait) throws IOException {
        long ends = wait == null ? Long.MAX_VALUE : now() + wait.toMillis();
        for (long left = wait == null ? 0 : wait.toMillis(); ; left = Math.max(ends - now(), 1)) {
            try {
                return new Held(request + (wait == null ? "" : "&wait=" + left + "ms"));
            } catch (NotAcquired e) {
                left = ends - now();
                if (e.after == 0 || left <= 0 || Thread.currentThread().isInterrupted()) {
                    throw e;
                }
                LockSupport.parkNanos(Math.min(e.after * 1000, left) * 1_000_000);
            }
        }
    }

    private Held(String request) throws IOException {
        boolean held = false;
        try {
            asked = Clocks.read();
            if (connection.send("POST /v1/" + request) != 200) {
                String body = connection.rest();
                throw new NotAcquired(text(body, "code"), body, connection.after);
            }
            line = decided();
            token = number(line, "token", 0);
            Thread follower = new Thread(this::follow, "spindle " + request);
            follower.setDaemon(true);
            follower.start(); // may fail if there are too many threads
            held = true;
        } finally {
            if (!held) {
                connection.close();
            }
        }
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

    /** Releases the lock. Throws Lost if the lock had already been lost, or another IOException if that is unknown. */
    @Override
    public void close() throws IOException {
        boolean late;
        synchronized (this) {
            if (released) {
                return;
            }
            released = true;
            late = !still();
            end("it was released");
        }
        int status = 0;
        String said;
        boolean interrupted = Thread.interrupted(); // a channel can't be used by a thread that is interrupted
        try (connection; Connection c = new Connection()) { // the agent answers before the stream is closed
            status = c.send("POST /v1/holds/" + id + "/release");
            said = c.rest();
        } catch (IOException e) {
            said = "the agent has ended: " + e.getMessage();
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
        if (status != 200 && (late || status == 410)) {
            throw new Lost(said);
        }
        if (status != 200) {
            throw new IOException("it is not known whether the lock is released; otherwise it expires: " + said);
        }
    }

    private String decided() throws IOException {
        for (String next; (next = connection.next()) != null; ) {
            String event = take(next);
            switch (event) {
                case "held" -> {
                    return next;
                }
                case "timeout", "done" -> throw new NotAcquired(event, next, 0);
                case "refused" -> throw new NotAcquired(text(next, "reason"), next, 0);
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
    private static long now() {
        return Math.floorDiv(System.nanoTime(), 1_000_000L);
    }

    private record Clocks(long monotonic, long unix) {
        static Clocks read() {
            return new Clocks(now(), System.currentTimeMillis());
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
        long after; // the seconds of Retry-After

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
                if (header != null && header.toLowerCase(Locale.ROOT).startsWith("retry-after: ")) {
                    after = Long.parseLong(header.substring(13).strip());
                }
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

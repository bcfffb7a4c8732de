#nullable enable
using System;
using System.Diagnostics;
using System.IO;
using System.Net.Http;
using System.Net.Sockets;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

/// <summary>
/// A lock of the spindle agent of this machine, as docs/agent.md describes it. Act only while Still() is true, and dispose of it
/// only when the work has returned: another program may hold the lock immediately.
/// </summary>
public sealed class Held : IAsyncDisposable
{
    private static readonly TimeSpan Silence = TimeSpan.FromSeconds(15); // the agent sends a line every 5 s

    private static readonly HttpClient Agent = new(new SocketsHttpHandler
    {
        ConnectCallback = async (_, cancel) =>
        {
            var path = Environment.GetEnvironmentVariable("SPINDLE_AGENT") ?? "/run/spindle/agent.sock";
            var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
            try
            {
                await socket.ConnectAsync(new UnixDomainSocketEndPoint(path), cancel);
                return new NetworkStream(socket, ownsSocket: true);
            }
            catch
            {
                socket.Dispose();
                throw;
            }
        },
        PooledConnectionLifetime = TimeSpan.Zero, // a request that is sent again would be another hold
        UseProxy = false,
    })
    {
        BaseAddress = new Uri("http://agent"),
        Timeout = Silence, // of the headers only, for a response with lines
    };

    private readonly HttpResponseMessage response;
    private readonly StreamReader lines;
    private readonly Clocks asked;
    private readonly object mutex = new();
    private string id = "";
    private long? distance; // between our readings before and after the agent's; null: the agent has other clocks
    private volatile Clocks until = Clocks.Past;
    private volatile string lost = "its time is over";
    private volatile bool stopping;
    private bool released;

    /// <summary>The token of this term, which is larger than the tokens of all earlier terms.</summary>
    public long Token { get; private set; }

    /// <summary>The line "held". It has the fence.</summary>
    public JsonElement Line { get; private set; }

    /// <summary>Whether the agent has asked for the lock. It is still held: complete the work, then dispose of it.</summary>
    public bool Stopping => stopping;

    /// <summary>Acquires a mutex. A null wait waits forever, and a wait of zero does not wait.</summary>
    public static Task<Held> LockAsync(string name, TimeSpan? wait = null, CancellationToken cancel = default) =>
        AcquireAsync($"locks?name={Uri.EscapeDataString(name)}" + (wait is { } w ? $"&wait={(long)w.TotalMilliseconds}ms" : ""), cancel);

    /// <summary>Asks for a lock of any kind, such as semaphores?name=a&amp;slots=5.</summary>
    public static async Task<Held> AcquireAsync(string request, CancellationToken cancel = default)
    {
        var asked = Clocks.Read();
        var response = await Agent.SendAsync(
            new HttpRequestMessage(HttpMethod.Post, "/v1/" + request), HttpCompletionOption.ResponseHeadersRead, cancel);
        try
        {
            if (!response.IsSuccessStatusCode)
                throw new NotAcquiredException(await response.Content.ReadAsStringAsync(cancel));
            var held = new Held(response, new StreamReader(await response.Content.ReadAsStreamAsync(cancel)), asked);
            await held.DecidedAsync(cancel);
            _ = held.FollowAsync();
            return held;
        }
        catch
        {
            response.Dispose();
            throw;
        }
    }

    private Held(HttpResponseMessage response, StreamReader lines, Clocks asked) =>
        (this.response, this.lines, this.asked) = (response, lines, asked);

    /// <summary>Whether the program may act now. It only compares clocks, and sends no request.</summary>
    public bool Still() => Clocks.Read().Before(until);

    /// <summary>Throws LostException unless the program may act now. Call it right before each effect.</summary>
    public void Check()
    {
        if (!Still()) throw new LostException("another program may hold the lock: " + lost);
    }

    /// <summary>Releases the lock. Throws LostException if the lock had already been lost, or IOException if that is unknown.</summary>
    public async ValueTask DisposeAsync()
    {
        bool late;
        lock (mutex)
        {
            if (released) return;
            released = true;
            late = !Still();
            lost = "it was released";
            until = Clocks.Past;
        }
        var status = 0;
        string said;
        using (response) // the agent answers before the stream is closed
        {
            try
            {
                using var answer = await Agent.PostAsync($"/v1/holds/{id}/release", null);
                said = await answer.Content.ReadAsStringAsync();
                status = (int)answer.StatusCode;
            }
            catch (Exception e) when (e is HttpRequestException or TaskCanceledException)
            {
                said = "the agent has ended: " + e.Message;
            }
        }
        if (status == 200) return;
        if (late || status == 410) throw new LostException(said);
        throw new IOException("it is not known whether the lock is released; otherwise it expires: " + said);
    }

    private async Task DecidedAsync(CancellationToken cancel)
    {
        while (await lines.ReadLineAsync(cancel).AsTask().WaitAsync(Silence, cancel) is { } line)
        {
            switch (await TakeAsync(line))
            {
                case "held":
                    return;
                case "timeout" or "refused" or "done":
                    throw new NotAcquiredException(line);
            }
        }
        throw new IOException("the agent has ended: ask again");
    }

    private async Task FollowAsync()
    {
        try
        {
            while (await lines.ReadLineAsync() is { } line) await TakeAsync(line);
        }
        catch (Exception e) when (e is IOException or HttpRequestException or ObjectDisposedException)
        {
            // The lock is released, or the agent has ended. In that case, the lock is held until the last time promised.
        }
    }

    private async Task<string> TakeAsync(string line)
    {
        if (line == "") return "";
        using var document = JsonDocument.Parse(line);
        var said = document.RootElement;
        var kind = said.GetProperty("event").GetString() ?? "";
        switch (kind)
        {
            case "hello":
                id = said.GetProperty("hold").GetString() ?? "";
                distance = Clocks.In(said.GetProperty("now"))?.Between(asked, Clocks.Read());
                break;
            case "held":
                (Line, Token) = (said.Clone(), said.GetProperty("token").GetInt64());
                await ExtendAsync(said, first: true);
                break;
            case "until":
                await ExtendAsync(said, first: false);
                break;
            case "stop":
                stopping = true;
                break;
            case "lost":
                lock (mutex)
                {
                    lost = said.GetProperty("reason").GetString() ?? "";
                    until = Clocks.Past;
                }
                break;
        }
        return kind;
    }

    private async Task ExtendAsync(JsonElement said, bool first)
    {
        if (distance is { } apart && Clocks.In(said.GetProperty("until")) is { } end)
        {
            Promise(end.Plus(-apart));
            return;
        }
        var before = Clocks.Read();
        try
        {
            using var document = JsonDocument.Parse(await Agent.GetStringAsync($"/v1/holds/{id}"));
            var left = document.RootElement.GetProperty("left_ms").GetInt64();
            if (left > 0) Promise(before.Plus(left));
        }
        catch (Exception e) when (!first && e is HttpRequestException or TaskCanceledException)
        {
            // The lock is held until the last time promised.
        }
    }

    private void Promise(Clocks end)
    {
        lock (mutex)
        {
            if (!released) until = end;
        }
    }

    /// <summary>On Linux, Stopwatch reads CLOCK_MONOTONIC in nanoseconds. .NET can't read CLOCK_BOOTTIME.</summary>
    private sealed record Clocks(long Monotonic, long Unix)
    {
        public static readonly Clocks Past = new(0, 0);

        public static Clocks Read() =>
            new(Stopwatch.GetTimestamp() / (Stopwatch.Frequency / 1000), DateTimeOffset.UtcNow.ToUnixTimeMilliseconds());

        public static Clocks? In(JsonElement reading) =>
            reading.TryGetProperty("monotonic_ms", out var monotonic) && reading.TryGetProperty("unix_ms", out var unix)
                ? new(monotonic.GetInt64(), unix.GetInt64())
                : null;

        public bool Before(Clocks end) => Monotonic < end.Monotonic && Unix < end.Unix;

        public Clocks Plus(long ms) => new(Monotonic + ms, Unix + ms);

        /// <summary>Returns the distance between two readings, or null if it is too long or this one is not between them.</summary>
        public long? Between(Clocks first, Clocks last)
        {
            var apart = Math.Max(last.Monotonic - first.Monotonic, last.Unix - first.Unix);
            var lies = first.Monotonic <= Monotonic && Monotonic <= last.Monotonic && first.Unix <= Unix && Unix <= last.Unix;
            return lies && apart <= 100 ? apart : null;
        }
    }
}

/// <summary>The lock was not acquired: the message is the agent's answer.</summary>
public sealed class NotAcquiredException(string message) : Exception(message);

/// <summary>Another program may hold the lock.</summary>
public sealed class LostException(string message) : Exception(message);

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;

/** Does something for each line of its input, while it holds the lock that its argument names. */
public class Example {
    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        try (Held held = Held.lock(args[0], Duration.ofSeconds(30))) {
            System.out.println("held under token " + held.token);
            for (String line; !held.stopping() && (line = input.readLine()) != null; ) {
                held.check(); // throws Held.Lost if another program may hold the lock
                System.out.println("did " + line);
            }
        }
    }
}

// Idempotency keys from Java, with JDBC.
//
// Needs Java 17, the PostgreSQL JDBC driver, and a database with the extension, reached over TCP,
// as PGHOST etc. name it:
// java -cp postgresql.jar Order.java

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class Order {
    static final String LEASE_LOST = "OB001";
    static final String NO_KEY = "22004";

    /** A response; the body is JSON as text. */
    record Answer(int status, String body) {}

    /** The answer is null if the decision is execute. */
    record Begun(long token, Answer answer) {}

    static Begun begin(Connection connection, String scope, String key, String body, String wait, String lease)
            throws SQLException {
        try (PreparedStatement call = connection.prepareStatement(
                "SELECT decision, token, http_hint, response"
                        + " FROM idempotency_begin(?, ?, ?, wait => ?::interval, lease => ?::interval)")) {
            call.setString(1, scope);
            call.setString(2, key);
            call.setString(3, body);
            call.setString(4, wait);
            call.setString(5, lease);
            try (ResultSet row = call.executeQuery()) {
                row.next();
                boolean execute = row.getString("decision").equals("execute");
                return new Begun(row.getLong("token"),
                        execute ? null : new Answer(row.getInt("http_hint"), row.getString("response")));
            }
        }
    }

    static void finish(Connection connection, String scope, String key, long token, Answer answer, boolean failed)
            throws SQLException {
        try (PreparedStatement call = connection.prepareStatement("SELECT idempotency_finish(?, ?, ?, ?, ?, failed => ?)")) {
            call.setString(1, scope);
            call.setString(2, key);
            call.setLong(3, token);
            call.setInt(4, answer.status());
            call.setString(5, answer.body());
            call.setBoolean(6, failed);
            call.execute();
        }
    }

    /** Commits, or rolls back after an exception. */
    static <T> T transaction(Connection connection, Callable<T> work) throws Exception {
        connection.setAutoCommit(false);
        try {
            T result = work.call();
            connection.commit();
            return result;
        } catch (Exception error) {
            connection.rollback();
            throw error;
        } finally {
            connection.setAutoCommit(true);
        }
    }

    /** POST /orders: all work is in the database, so one transaction is enough. */
    static Answer createOrder(Connection connection, String key, String item, int count, String wait) throws Exception {
        String body = "{\"item\": \"%s\", \"count\": %d}".formatted(item, count);
        try {
            return transaction(connection, () -> {
                Begun begun = begin(connection, "order.create", key, body, wait, null);
                if (begun.answer() != null) return begun.answer();
                long id = value(connection, "INSERT INTO example_orders (item) VALUES (?) RETURNING id", item);
                Answer answer = new Answer(201, "{\"order\": %d}".formatted(id));
                try (PreparedStatement call = connection.prepareStatement("SELECT outbox_enqueue('Order', ?, 'OrderCreated', ?)")) {
                    call.setLong(1, id);
                    call.setString(2, answer.body());
                    call.execute();
                }
                finish(connection, "order.create", key, begun.token(), answer, false);
                return answer;
            });
        } catch (SQLException error) {
            if (NO_KEY.equals(error.getSQLState())) return new Answer(400, "{\"error\": \"Idempotency-Key is missing\"}");
            throw error;
        }
    }

    /** POST /payments: calls the provider between two transactions, without a lock. */
    static Answer capturePayment(Connection connection, Provider provider, String key, int amount, String lease)
            throws SQLException {
        Begun begun = begin(connection, "payment.capture", key, "{\"amount\": %d}".formatted(amount), null, lease);
        if (begun.answer() != null) return begun.answer();
        boolean approved = provider.charge(key, amount);
        Answer answer = approved ? new Answer(200, "{\"paid\": %d}".formatted(amount))
                : new Answer(402, "{\"error\": \"card declined\"}");
        finish(connection, "payment.capture", key, begun.token(), answer, !approved);
        return answer;
    }

    // ---- Demonstration.

    /** A payment provider. It supports idempotency keys: a repeated charge is made once. */
    static class Provider {
        int calls = 0;
        boolean crash = false;
        final Map<String, Integer> charges = new HashMap<>();

        boolean charge(String key, int amount) {
            calls++;
            charges.put(key, amount);
            if (crash) throw new IllegalStateException("and the server that called is gone, too");
            return amount < 1000;
        }
    }

    static long value(Connection connection, String sql, String argument) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, argument);
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                return row.getLong(1);
            }
        }
    }

    static long countOrders(Connection connection, String item) throws SQLException {
        return value(connection, "SELECT count(*) FROM example_orders WHERE item = ?", item);
    }

    static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    static Connection connect() throws SQLException {
        String user = setting("PGUSER", System.getProperty("user.name"));
        return DriverManager.getConnection("jdbc:postgresql://%s:%s/%s".formatted(setting("PGHOST", "localhost"),
                setting("PGPORT", "5432"), setting("PGDATABASE", user)), user, setting("PGPASSWORD", ""));
    }

    static void check(boolean holds) {
        if (!holds) throw new AssertionError("not as it should be");
    }

    public static void main(String[] arguments) throws Exception {
        Connection one = connect(), two = connect();
        one.createStatement().execute(
                "CREATE TABLE IF NOT EXISTS example_orders (id bigint GENERATED ALWAYS AS IDENTITY, item text)");
        String run = System.currentTimeMillis() + "-" + System.nanoTime(); // makes keys unique to this run
        String a = run + "-a", b = run + "-b", c = run + "-c", d = run + "-d", e = run + "-e";

        Answer first = createOrder(one, a, a, 1, null), second = createOrder(two, a, a, 1, null);
        check(first.equals(second));
        System.out.printf("twice: %d and %d, %d order%n", first.status(), second.status(), countOrders(one, a));
        System.out.printf("another request: %d%n", createOrder(two, a, a, 2, null).status());
        System.out.printf("no key: %d%n", createOrder(two, null, a, 1, null).status());

        var clients = Executors.newFixedThreadPool(8);
        List<Callable<Answer>> calls = new ArrayList<>();
        for (int i = 0; i < 8; i++)
            calls.add(() -> {
                try (Connection connection = connect()) {
                    return createOrder(connection, b, b, 1, "30 s");
                }
            });
        List<Future<Answer>> answers = clients.invokeAll(calls);
        clients.shutdown();
        for (var answer : answers) check(answer.get().equals(answers.get(0).get()));
        System.out.printf("eight at once: %d, %d order%n", answers.get(0).get().status(), countOrders(one, b));

        // The first attempt has not committed. Then its client crashes.
        one.setAutoCommit(false);
        begin(one, "order.create", c, "{\"item\": \"%s\", \"count\": 1}".formatted(c), null, null);
        System.out.printf("while it runs: %d%n", createOrder(two, c, c, 1, null).status());
        one.close();
        Answer answer = createOrder(two, c, c, 1, "30 s");
        System.out.printf("after a crash: %d, %d order%n", answer.status(), countOrders(two, c));

        one = connect();
        Provider provider = new Provider();
        first = capturePayment(one, provider, d, 5000, null);
        second = capturePayment(one, provider, d, 5000, null);
        System.out.printf("declined twice: %d and %d, %d call%n", first.status(), second.status(), provider.calls);

        // The payment is made, but the client crashes before the second transaction.
        provider = new Provider();
        provider.crash = true;
        try {
            capturePayment(one, provider, e, 10, "1 s");
            check(false);
        } catch (IllegalStateException crashed) {
            provider.crash = false;
        }
        Answer atOnce = capturePayment(two, provider, e, 10, null);
        Thread.sleep(1100);
        long token = begin(one, "payment.capture", e, "{\"amount\": 10}", null, "1 s").token(); // the client crashes again
        Thread.sleep(1100);
        Answer later = capturePayment(two, provider, e, 10, null);
        System.out.printf("after a crash between: %d, then %d, %d charge%n", atOnce.status(), later.status(),
                provider.charges.size());
        try {
            finish(one, "payment.capture", e, token, new Answer(200, "{}"), false);
            check(false);
        } catch (SQLException error) {
            check(LEASE_LOST.equals(error.getSQLState()));
            System.out.printf("the crashed one comes back: %s%n", error.getSQLState());
        }
    }
}

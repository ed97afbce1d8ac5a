import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Where Kafka's own producer puts the percent-encoded keys of standard input, line by line. */
public class KafkaPartitions {
    public static void main(String[] arguments) throws IOException {
        int partitions = Integer.parseInt(arguments[0]);
        BufferedReader keys =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.ISO_8859_1));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = keys.readLine()) != null; ) {
            byte[] key = URLDecoder.decode(line.replace("+", "%2B"), StandardCharsets.ISO_8859_1)
                .getBytes(StandardCharsets.ISO_8859_1);
            answers.append(BuiltInPartitioner.partitionForKey(key, partitions)).append('\n');
        }
        System.out.print(answers);
    }
}

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The Java side of tests and benchmarks that run Confluent's Parallel Consumer beside ours, on the broker that the
 * first argument names.
 *
 * Each line of standard input is a request, a command and its arguments; each is answered by one line of JSON on
 * standard output. The JVM ends, without a commit, when standard input does.
 */
public final class Peer {
    private final String bootstrap;
    private final Map<String, Member> members = new HashMap<>();

    private Peer(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws IOException {
        var answers = System.out;
        System.setOut(System.err);
        var peer = new Peer(arguments[0]);
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = requests.readLine()) != null; ) {
            answers.println(Json.text(peer.answer(line)));
            answers.flush();
        }
        System.exit(0);
    }

    private Map<String, ?> answer(String request) {
        var words = request.split(" ", 2);
        try {
            return respond(words[0], new Arguments(words[1]));
        } catch (Exception error) {
            error.printStackTrace();
            return Map.of("error", error.toString());
        }
    }

    private Map<String, ?> respond(String command, Arguments arguments) throws InterruptedException {
        return switch (command) {
            case "open" -> {
                members.put(arguments.text("name"), new Member(consumer(arguments.text("group")), arguments));
                yield Map.of();
            }
            case "await" -> {
                var timeout = Duration.ofMillis(arguments.integer("timeout_ms"));
                yield Map.of("finished", members.get(arguments.text("name")).await(arguments.integer("records"), timeout));
            }
            case "close" -> members.remove(arguments.text("name")).close(Boolean.parseBoolean(arguments.text("drain")));
            case "show" -> Map.of("committed", show(arguments.text("topic"), arguments.text("group")));
            case "commit" -> commit(arguments);
            case "micros" -> Map.of("micros", arguments.coordinates("records").stream()
                .map(at -> Work.micros(at.partition(), at.offset(), arguments.integer("most"))).toList());
            default -> throw new IllegalArgumentException("no such command: " + command);
        };
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** What the plain Java client reads of a group's commits, by partition. */
    private Map<Integer, Map<String, ?>> show(String topic, String group) {
        try (var consumer = consumer(group)) {
            var partitions = consumer.partitionsFor(topic).stream()
                .map(each -> new TopicPartition(topic, each.partition())).collect(Collectors.toSet());
            var committed = new TreeMap<Integer, Map<String, ?>>();
            consumer.committed(partitions).forEach((partition, commit) -> {
                if (commit != null)
                    committed.put(partition.partition(), Map.of("offset", commit.offset(), "metadata", commit.metadata()));
            });
            return committed;
        }
    }

    /** A commit of the plain Java client. */
    private Map<String, ?> commit(Arguments arguments) {
        try (var consumer = consumer(arguments.text("group"))) {
            var at = arguments.coordinates("at").get(0);
            consumer.commitSync(Map.of(new TopicPartition(arguments.text("topic"), at.partition()),
                new OffsetAndMetadata(at.offset(), arguments.text("metadata"))));
            return Map.of();
        }
    }
}

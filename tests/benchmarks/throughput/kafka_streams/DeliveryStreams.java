import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KafkaStreams.State;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;

/**
 * The deliveries' transform on Kafka Streams: {@code DeliveryStreams bootstrap guarantee state-folder input}.
 *
 * Each line of standard input, an application id and two output topics, ends the application that runs and starts
 * another one in the same, by then warm, JVM. The JVM ends in order on SIGTERM, and when standard input does.
 */
public final class DeliveryStreams {
    private static final int THREADS = 2;

    public static void main(String[] arguments) throws IOException {
        var orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        KafkaStreams running = null;
        for (String line; (line = orders.readLine()) != null; ) {
            if (running != null) running.close();
            running = started(arguments, line.split(" "));
        }
        System.exit(0);
    }

    private static KafkaStreams started(String[] arguments, String[] order) {
        var streams = new KafkaStreams(topology(arguments[3], order[1], order[2]), settings(arguments, order[0]));
        streams.setStateListener((state, before) -> {
            if (state == State.ERROR) Runtime.getRuntime().halt(1);
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        return streams;
    }

    private static Properties settings(String[] arguments, String application) {
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, THREADS);
        return settings;
    }

    private static Topology topology(String input, String features, String deadLetters) {
        var bytes = new ByteArraySerializer();
        return new Topology()
            .addSource("deliveries", new ByteArrayDeserializer(), new ByteArrayDeserializer(), input)
            .addProcessor("distance", DistanceProcessor::new, "deliveries")
            .addSink(DistanceProcessor.FEATURES, features, bytes, bytes, "distance")
            .addSink(DistanceProcessor.DEAD_LETTERS, deadLetters, bytes, bytes, "distance");
    }
}

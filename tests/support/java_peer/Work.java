import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** What is done with a record; it throws, or is interrupted, where the record is not to count as finished. */
interface Work {
    void on(ConsumerRecord<byte[], byte[]> record) throws IOException, InterruptedException;

    /** "none"; "sleep 5000", 0 to 5,000 µs by the record's coordinates; "fixed 1000", 1,000 µs; "http URL", a GET. */
    static Work parse(String text) {
        var words = text.split(" ", 2);
        return switch (words[0]) {
            case "none" -> record -> { };
            case "sleep" -> {
                var most = Integer.parseInt(words[1]);
                yield record -> sleep(micros(record.partition(), record.offset(), most));
            }
            case "fixed" -> {
                var micros = Integer.parseInt(words[1]);
                yield record -> sleep(micros);
            }
            case "http" -> get(URI.create(words[1]));
            default -> throw new IllegalArgumentException("no such work: " + text);
        };
    }

    /** Microseconds from 0 to {@code most}, the same in every language: SplitMix64 of partition and offset. */
    static long micros(int partition, long offset, int most) {
        var mixed = ((long) partition << 48) + offset + 0x9E3779B97F4A7C15L;
        mixed = (mixed ^ mixed >>> 30) * 0xBF58476D1CE4E5B9L;
        mixed = (mixed ^ mixed >>> 27) * 0x94D049BB133111EBL;
        return Long.remainderUnsigned(mixed ^ mixed >>> 31, most + 1L);
    }

    // Thread.sleep and TimeUnit.sleep of Java 17 round up to whole milliseconds, which would cost Java half a
    // millisecond per record that its rivals do not pay.
    private static void sleep(long micros) throws InterruptedException {
        var end = System.nanoTime() + micros * 1_000;
        for (long left; (left = end - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(left);
            if (Thread.interrupted()) throw new InterruptedException();
        }
    }

    private static Work get(URI address) {
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        var request = HttpRequest.newBuilder(address).build();
        return record -> {
            var status = client.send(request, BodyHandlers.discarding()).statusCode();
            if (status != 200) throw new IOException(address + " answered " + status);
        };
    }
}

import com.sun.management.OperatingSystemMXBean;
import io.confluent.parallelconsumer.PCRetriableException;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.internal.DrainingCloseable.DrainingMode;
import io.confluent.parallelconsumer.offsets.OffsetEncoding;
import io.confluent.parallelconsumer.offsets.OffsetMapCodecManager;
import io.confluent.parallelconsumer.offsets.OffsetSimultaneousEncoder;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAccumulator;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** A parallel consumer of one topic, which writes down what it was handed, and when its order was broken. */
final class Member {
    /** The coordinates of a record. */
    record At(int partition, long offset) { }

    /** Whose records are to come one at a time and in order: a key's, or under PARTITION a partition's. */
    private record Shard(int partition, ByteBuffer key) { }

    private final ProcessingOrder order;
    private final Work work;
    private final Set<At> unfinished;
    private final ParallelStreamProcessor<byte[], byte[]> processor;

    private final Queue<At> handed = new ConcurrentLinkedQueue<>();
    private final Set<At> done = ConcurrentHashMap.newKeySet();
    private final Semaphore finished = new Semaphore(0);
    private final AtomicLong first = new AtomicLong();
    private final LongAccumulator last = new LongAccumulator(Math::max, Long.MIN_VALUE);
    private final LongAdder worked = new LongAdder();
    private volatile long cpuBefore;

    private final ConcurrentMap<Shard, Long> latest = new ConcurrentHashMap<>();
    private final Set<Shard> busy = ConcurrentHashMap.newKeySet();
    private final AtomicInteger outOfOrder = new AtomicInteger();
    private final AtomicInteger overlapping = new AtomicInteger();
    private final AtomicInteger duplicates = new AtomicInteger();

    /** Starts to consume. Where the arguments say nothing, the library's own defaults hold. */
    Member(Consumer<byte[], byte[]> consumer, Arguments arguments) {
        order = ProcessingOrder.valueOf(arguments.text("order"));
        work = Work.parse(arguments.text("work"));
        unfinished = Set.copyOf(arguments.coordinates("unfinished"));
        var options = ParallelConsumerOptions.<byte[], byte[]>builder().consumer(consumer).ordering(order)
            .maxConcurrency(arguments.integer("concurrency")).retryDelayProvider(record -> Duration.ofHours(1));
        if (arguments.has("buffer")) options.messageBufferSize(arguments.integer("buffer"));
        if (arguments.has("commit_ms"))
            options.commitMode(CommitMode.PERIODIC_CONSUMER_SYNC).commitInterval(Duration.ofMillis(arguments.integer("commit_ms")));
        if (arguments.has("encoding")) force(Optional.of(OffsetEncoding.valueOf(arguments.text("encoding"))));
        processor = ParallelStreamProcessor.createEosStreamProcessor(options.build());
        processor.subscribe(List.of(arguments.text("topic")));
        processor.poll(context -> take(context.getSingleConsumerRecord()));
    }

    /** Waits until that many different records are finished in all; returns how many are, which are fewer after the timeout. */
    int await(int records, Duration timeout) throws InterruptedException {
        if (finished.tryAcquire(records, timeout.toMillis(), TimeUnit.MILLISECONDS)) finished.release(records);
        return finished.availablePermits();
    }

    /** Commits what is finished and leaves the group; with {@code drain} it first finishes what it has fetched. */
    Map<String, Object> close(boolean drain) {
        var used = cpu() - cpuBefore;
        processor.close(Duration.ofSeconds(30), drain ? DrainingMode.DRAIN : DrainingMode.DONT_DRAIN);
        force(Optional.empty());
        return Map.of("handed", handed.stream().map(at -> List.of(at.partition(), at.offset())).toList(),
            "seconds", Math.max(0, last.get() - first.get()) / 1e9, "worked", worked.sum() / 1e9, "cpu_s", used / 1e9,
            "out_of_order", outOfOrder.get(), "overlapping", overlapping.get(), "duplicates", duplicates.get());
    }

    private static long cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private void take(ConsumerRecord<byte[], byte[]> record) {
        if (first.compareAndSet(0, System.nanoTime())) cpuBefore = cpu();
        var at = new At(record.partition(), record.offset());
        handed.add(at);
        var shard = new Shard(record.partition(), order == ProcessingOrder.PARTITION ? null : key(record));
        enter(shard, at);
        try {
            if (unfinished.contains(at)) throw new PCRetriableException("to be left unfinished");
            var began = System.nanoTime();
            work.on(record);
            worked.add(System.nanoTime() - began);
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        } finally {
            busy.remove(shard);
        }
        last.accumulate(System.nanoTime());
        if (done.add(at)) finished.release();
        else duplicates.incrementAndGet();
    }

    private void enter(Shard shard, At at) {
        if (!busy.add(shard)) overlapping.incrementAndGet();
        var before = latest.put(shard, at.offset());
        if (before != null && before > at.offset()) outOfOrder.incrementAndGet();
    }

    private static ByteBuffer key(ConsumerRecord<byte[], byte[]> record) {
        return record.key() == null ? null : ByteBuffer.wrap(record.key());
    }

    /** Makes every parallel consumer of this JVM write its maps in one encoding; empty: in the smallest. */
    private static void force(Optional<OffsetEncoding> encoding) {
        OffsetMapCodecManager.forcedCodec = encoding;
        OffsetSimultaneousEncoder.compressionForced = encoding.isPresent();
    }
}

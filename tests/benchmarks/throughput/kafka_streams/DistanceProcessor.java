import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

/** Writes the feature of each delivery, and a record that violates the contract as it came, with the reason. */
final class DistanceProcessor extends ContextualProcessor<byte[], byte[], byte[], byte[]> {
    static final String FEATURES = "features";
    static final String DEAD_LETTERS = "dead-letters";

    private final FeatureWriter writer = new FeatureWriter();

    @Override
    public void process(Record<byte[], byte[]> record) {
        byte[] feature;
        try {
            feature = writer.write(Delivery.read(record.value()));
        } catch (ContractViolation violation) {
            var headers = new RecordHeaders(record.headers());
            headers.add("error.reason", violation.getMessage().getBytes(StandardCharsets.UTF_8));
            context().forward(record.withHeaders(headers), DEAD_LETTERS);
            return;
        }
        context().forward(record.withValue(feature), FEATURES);
    }
}

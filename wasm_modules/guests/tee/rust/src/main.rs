//! Writes every record to the first output topic and, by name, to the second.

use redpanda_transform_sdk::{on_record_written, RecordWriter, WriteError, WriteEvent, WriteOptions};

fn main() {
    let second = std::env::var("REDPANDA_OUTPUT_TOPIC_1").expect("a second output topic");
    on_record_written(|event, writer| tee(event, writer, &second));
}

fn tee(event: WriteEvent, writer: &mut RecordWriter, second: &str) -> Result<(), WriteError> {
    writer.write(&event.record)?;
    writer.write_with_options(&event.record, WriteOptions::to_topic(second))
}

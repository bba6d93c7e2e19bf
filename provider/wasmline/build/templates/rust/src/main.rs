//! Passes records on with their value in upper case, and leaves out those without a value.

use redpanda_transform_sdk::{on_record_written, BorrowedRecord, RecordWriter, WriteError, WriteEvent};

fn main() {
    on_record_written(shout);
}

fn shout(event: WriteEvent, writer: &mut RecordWriter) -> Result<(), WriteError> {
    let record = event.record;
    let Some(value) = record.value() else {
        return Ok(());
    };
    let shouted = value.to_ascii_uppercase();
    writer.write(BorrowedRecord::new_with_headers(record.key(), Some(&shouted), record.headers().to_vec()))
}

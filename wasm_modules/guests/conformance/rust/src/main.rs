use std::error::Error;
use std::io::Write;
use std::time::UNIX_EPOCH;

use redpanda_transform_sdk::{on_record_written, BorrowedRecord, RecordWriter, WriteEvent, WriteOptions};

fn main() {
    let second = std::env::var("REDPANDA_OUTPUT_TOPIC_1").expect("a second output topic");
    let greeting = std::env::var("GREETING").expect("a greeting");
    on_record_written(|event, writer| act(event, writer, &second, &greeting));
}

fn act(event: WriteEvent, writer: &mut RecordWriter, second: &str, greeting: &str) -> Result<(), Box<dyn Error>> {
    let record = &event.record;
    let starts = |word: &str| record.key().unwrap_or_default().starts_with(word.as_bytes());
    let mut with_value = |value: &[u8]| {
        let headers = record.headers().iter().map(Into::into).collect();
        writer.write(BorrowedRecord::new_with_headers(record.key(), Some(value), headers))
    };
    if starts("time") {
        let milliseconds = record.timestamp().duration_since(UNIX_EPOCH)?.as_millis();
        return Ok(with_value(milliseconds.to_string().as_bytes())?);
    }
    if starts("env") {
        return Ok(with_value(greeting.as_bytes())?);
    }
    if starts("second") {
        return Ok(writer.write_with_options(record, WriteOptions::to_topic(second))?);
    }
    if starts("drop") {
        return Ok(());
    }
    if starts("log") {
        let line = [record.value().unwrap_or_default(), b"\n"].concat();
        return Ok(std::io::stderr().write_all(&line)?);
    }
    writer.write(record)?;
    if starts("twice") {
        writer.write(record)?;
    }
    if starts("fail") {
        return Err("on purpose".into());
    }
    Ok(())
}

//! Passes records on, but fails after the write for the keys "panic", "error" and "nowhere".

use std::error::Error;

use redpanda_transform_sdk::{on_record_written, RecordWriter, WriteEvent, WriteOptions};

fn main() {
    on_record_written(pass);
}

fn pass(event: WriteEvent, writer: &mut RecordWriter) -> Result<(), Box<dyn Error>> {
    writer.write(&event.record)?;
    match event.record.key() {
        Some(b"panic") => {
            eprintln!("about to panic");
            panic!("on purpose")
        }
        Some(b"error") => Err("refused on purpose".into()),
        Some(b"nowhere") => Ok(writer.write_with_options(&event.record, WriteOptions::to_topic("nowhere"))?),
        _ => Ok(()),
    }
}

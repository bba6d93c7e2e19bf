//! Asks its schema registry what each record's key says, about what its value says, and writes the answer.

use std::cell::RefCell;

use redpanda_transform_sdk::{on_record_written, BorrowedRecord, RecordWriter, WriteError, WriteEvent};
use redpanda_transform_sdk_sr::{Schema, SchemaFormat, SchemaId, SchemaRegistryClient, SchemaVersion};

fn main() {
    let registry = RefCell::new(SchemaRegistryClient::new());
    on_record_written(|event, writer| answer(event, writer, &mut registry.borrow_mut()));
}

fn answer(
    event: WriteEvent,
    writer: &mut RecordWriter,
    registry: &mut SchemaRegistryClient,
) -> Result<(), WriteError> {
    let question = String::from_utf8_lossy(event.record.key().unwrap_or_default());
    let about = String::from_utf8_lossy(event.record.value().unwrap_or_default());
    let words: Vec<&str> = about.split(' ').collect();
    let told = ask(registry, &question, &words).unwrap_or("no".to_string());
    writer.write(BorrowedRecord::new(event.record.key(), Some(told.as_bytes())))
}

fn ask(registry: &mut SchemaRegistryClient, question: &str, about: &[&str]) -> Option<String> {
    match question {
        "id" => {
            let schema = registry.lookup_schema_by_id(SchemaId(about[0].parse().ok()?)).ok()?;
            let references = schema.references().len();
            Some(format!("{} {} {references}", format_of(&schema), schema.schema()))
        }
        "subject" => {
            let version = SchemaVersion(about[1].parse().ok()?);
            let found = registry.lookup_schema_by_version(about[0], version).ok()?;
            let (id, version, schema) = (found.id().0, found.version().0, found.schema());
            Some(format!("{id} {version} {} {}", format_of(schema), schema.schema()))
        }
        _ => {
            let schema = Schema::new(about[1], SchemaFormat::Json, vec![]);
            Some(registry.create_schema(about[0], schema).ok()?.id().0.to_string())
        }
    }
}

fn format_of(schema: &Schema) -> u8 {
    match schema.format() {
        SchemaFormat::Avro => 0,
        SchemaFormat::Protobuf => 1,
        SchemaFormat::Json => 2,
    }
}

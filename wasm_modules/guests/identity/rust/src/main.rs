//! Passes every record on as it is.

use redpanda_transform_sdk::on_record_written;

fn main() {
    on_record_written(|event, writer| writer.write(event.record));
}

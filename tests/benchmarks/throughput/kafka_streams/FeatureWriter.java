import java.nio.charset.StandardCharsets;

/**
 * Writes features as JSON: eight fields by hand into one buffer, which a JSON library is not faster than. Not for
 * several threads.
 */
final class FeatureWriter {
    private final StringBuilder json = new StringBuilder(256);

    byte[] write(Delivery delivery) {
        json.setLength(0);
        text("{\"id\":", delivery.id());
        text(",\"driver\":", delivery.driver());
        json.append(",\"age\":").append(delivery.age());
        json.append(",\"rating\":").append(delivery.rating());
        json.append(",\"distance_km\":").append(delivery.distanceKm());
        text(",\"order_type\":", delivery.orderType());
        text(",\"vehicle\":", delivery.vehicle());
        json.append(",\"time_min\":").append(delivery.minutes()).append('}');
        return json.toString().getBytes(StandardCharsets.UTF_8);
    }

    private void text(String name, String text) {
        json.append(name).append('"');
        for (var index = 0; index < text.length(); index++) {
            if (isEscaped(text.charAt(index))) {
                escaped(text);
                return;
            }
        }
        json.append(text).append('"');
    }

    private void escaped(String text) {
        for (var index = 0; index < text.length(); index++) {
            var character = text.charAt(index);
            if (isEscaped(character)) json.append(String.format("\\u%04x", (int) character));
            else json.append(character);
        }
        json.append('"');
    }

    private static boolean isEscaped(char character) {
        return character < ' ' || character == '"' || character == '\\';
    }
}

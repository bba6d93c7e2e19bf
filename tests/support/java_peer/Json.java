import java.util.Collection;
import java.util.Map;
import java.util.stream.Collectors;

/** JSON text, in ASCII and on one line, of maps, collections, strings, numbers and booleans. */
final class Json {
    private Json() { }

    static String text(Object value) {
        if (value instanceof Map<?, ?> map)
            return map.entrySet().stream().map(each -> text(each.getKey().toString()) + ":" + text(each.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        if (value instanceof Collection<?> values)
            return values.stream().map(Json::text).collect(Collectors.joining(",", "[", "]"));
        if (value instanceof String string)
            return string.chars().mapToObj(Json::character).collect(Collectors.joining("", "\"", "\""));
        return String.valueOf(value);
    }

    private static String character(int unit) {
        return unit < ' ' || unit > '~' || unit == '"' || unit == '\\' ? "\\u%04x".formatted(unit) : Character.toString(unit);
    }
}

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The arguments of a request, which are written as in a web form: {@code topic=t&order=KEY}. */
final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    Arguments(String form) {
        for (var pair : form.split("&")) {
            var parts = pair.split("=", 2);
            if (parts.length == 2) values.put(parts[0], URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
        }
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String text(String name) {
        if (!has(name)) throw new IllegalArgumentException("the request has no " + name);
        return values.get(name);
    }

    int integer(String name) {
        return Integer.parseInt(text(name));
    }

    /** Records as {@code partition:offset,partition:offset}. */
    List<Member.At> coordinates(String name) {
        return text(name).isEmpty() ? List.of() : Arrays.stream(text(name).split(",")).map(each -> each.split(":"))
            .map(each -> new Member.At(Integer.parseInt(each[0]), Long.parseLong(each[1]))).toList();
    }
}

import java.nio.charset.StandardCharsets;

/** One line of a delivery, without quoted fields; the time of one that is under way is null. */
record Delivery(
    String id, String driver, double age, double rating, double latitude, double longitude, double toLatitude,
    double toLongitude, String orderType, String vehicle, Double minutes) {

    private static final int COLUMNS = 11;

    /** The mean radius R1 of the GRS 80 ellipsoid. */
    private static final double EARTH_RADIUS_KM = 6371.0088;

    static Delivery read(byte[] value) throws ContractViolation {
        if (value == null) throw new ContractViolation("null value");
        var cells = cells(new String(value, StandardCharsets.UTF_8));
        return new Delivery(
            cells[0], cells[1], number(cells[2]), number(cells[3]), coordinate(cells[4]), coordinate(cells[5]),
            coordinate(cells[6]), coordinate(cells[7]), cells[8], cells[9],
            cells[10].isEmpty() ? null : number(cells[10]));
    }

    /** The great-circle distance by the haversine formula. */
    double distanceKm() {
        var start = Math.toRadians(latitude);
        var end = Math.toRadians(toLatitude);
        var up = Math.sin((end - start) / 2);
        var across = Math.sin(Math.toRadians(toLongitude - longitude) / 2);
        var chord = up * up + Math.cos(start) * Math.cos(end) * across * across;
        return 2 * EARTH_RADIUS_KM * Math.asin(Math.sqrt(Math.min(1, chord)));
    }

    // indexOf is an intrinsic of the JVM; String.split would make a list first.
    private static String[] cells(String line) throws ContractViolation {
        var cells = new String[COLUMNS];
        var start = 0;
        for (var column = 0; column < COLUMNS - 1; column++) {
            var comma = line.indexOf(',', start);
            if (comma < 0) throw new ContractViolation(column + 1 + " columns instead of " + COLUMNS);
            cells[column] = line.substring(start, comma).strip();
            start = comma + 1;
        }
        if (line.indexOf(',', start) >= 0) throw new ContractViolation("more than " + COLUMNS + " columns");
        cells[COLUMNS - 1] = line.substring(start).strip();
        return cells;
    }

    private static double number(String text) throws ContractViolation {
        double number;
        try {
            number = Double.parseDouble(text);
        } catch (NumberFormatException error) {
            throw new ContractViolation("not a number: " + text);
        }
        if (!Double.isFinite(number)) throw new ContractViolation("not finite: " + text);
        return number;
    }

    private static double coordinate(String text) throws ContractViolation {
        var number = number(text);
        if (number < 0) throw new ContractViolation("a coordinate is negative: " + text);
        return number;
    }
}

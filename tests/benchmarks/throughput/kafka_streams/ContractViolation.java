/** Why a line is no delivery. It has no stack trace: it is an outcome, and its trace would cost more than the line. */
final class ContractViolation extends Exception {
    private static final long serialVersionUID = 1;

    ContractViolation(String reason) {
        super(reason, null, false, false);
    }
}

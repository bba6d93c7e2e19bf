"""The options of JVMs that live for seconds: half of their CPU time would go into compiling."""

JDK_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

import java.io.File;
import java.io.FileInputStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.activemq.broker.Broker;
import org.apache.activemq.broker.BrokerFilter;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.ConnectionContext;
import org.apache.activemq.broker.ProducerBrokerExchange;
import org.apache.activemq.broker.TransportConnector;
import org.apache.activemq.broker.region.DestinationInterceptor;
import org.apache.activemq.broker.region.Subscription;
import org.apache.activemq.broker.region.policy.IndividualDeadLetterStrategy;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.broker.region.policy.RedeliveryPolicyMap;
import org.apache.activemq.broker.region.policy.SharedDeadLetterStrategy;
import org.apache.activemq.broker.region.virtual.CompositeQueue;
import org.apache.activemq.broker.region.virtual.VirtualDestination;
import org.apache.activemq.broker.region.virtual.VirtualDestinationInterceptor;
import org.apache.activemq.broker.region.virtual.VirtualTopic;
import org.apache.activemq.broker.util.RedeliveryPlugin;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ConnectionInfo;
import org.apache.activemq.command.ConsumerInfo;
import org.apache.activemq.command.Message;
import org.apache.activemq.command.ProducerInfo;
import org.apache.activemq.plugin.DiscardingDLQBrokerPlugin;
import org.apache.activemq.store.SharedFileLocker;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/** ActiveMQ Classic as one process; the only argument is a properties file. Prints READY when it serves. */
public class ClassicBroker {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        try (FileInputStream in = new FileInputStream(args[0])) {
            p.load(in);
        }
        // The TLS connectors read their key store from the JVM's own properties.
        System.setProperty("javax.net.ssl.keyStore", p.getProperty("keyStore"));
        System.setProperty("javax.net.ssl.keyStorePassword", p.getProperty("keyStorePassword"));
        BrokerService broker = new BrokerService();
        broker.setBrokerName("integration");
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        store(broker, new File(p.getProperty("data")), Long.parseLong(p.getProperty("lockEvery")));
        broker.setSchedulerSupport(Boolean.parseBoolean(p.getProperty("scheduler"))); // AMQ_SCHEDULED_DELAY needs it
        broker.setDestinationPolicy(policies());
        broker.setDestinationInterceptors(new DestinationInterceptor[] {fanOut()});
        broker.setPlugins(plugins(broker, p.getProperty("user"), p.getProperty("password")));
        String at = "://" + p.getProperty("bind") + ":";
        String asJms = "?transport.transformer=jms" // the default, native, keeps a body that only AMQP can read
            + "&transport.wireFormat.idleTimeout=" + p.getProperty("amqpIdle");
        listen(broker, "tcp" + at + p.getProperty("openwire"));
        String frames = "?wireFormat.maxFrameSize=" + p.getProperty("stompFrames");
        listen(broker, "stomp" + at + p.getProperty("stomp") + frames);
        listen(broker, "stomp+ssl" + at + p.getProperty("stomps"));
        listen(broker, "amqp" + at + p.getProperty("amqp") + asJms);
        listen(broker, "amqp+ssl" + at + p.getProperty("amqps") + asJms);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(broker)));
        System.out.println("STARTING");
        System.out.flush();
        broker.start(); // waits for the lock of the store
        broker.waitUntilStarted();
        System.out.println("READY");
        System.out.flush();
        broker.waitUntilStopped();
    }

    /** A connector listens from the broker's start on, as one of an XML file: not before it has the lock. */
    static void listen(BrokerService broker, String uri) throws Exception {
        TransportConnector connector = new TransportConnector();
        connector.setUri(new URI(uri));
        connector.setName(uri);
        broker.addConnector(connector);
    }

    static void store(BrokerService broker, File data, long lockEvery) throws Exception {
        broker.setDataDirectoryFile(data);
        broker.setSchedulerDirectoryFile(new File(data, "scheduler"));
        KahaDBPersistenceAdapter kaha = new KahaDBPersistenceAdapter();
        kaha.setDirectory(new File(data, "kahadb"));
        kaha.setJournalMaxFileLength(16 << 20);
        if (lockEvery > 0) { // of a pair with one store
            SharedFileLocker locker = new SharedFileLocker();
            locker.setLockAcquireSleepInterval(lockEvery);
            kaha.setLocker(locker);
            kaha.setLockKeepAlivePeriod(lockEvery);
        }
        broker.setPersistenceAdapter(kaha);
        broker.getSystemUsage().getMemoryUsage().setLimit(128L << 20);
        broker.getSystemUsage().getStoreUsage().setLimit(2L << 30);
        broker.getSystemUsage().getTempUsage().setLimit(256L << 20);
        broker.getSystemUsage().getJobSchedulerUsage().setLimit(256L << 20);
    }

    /** Dead letters of `drop.000.` to `drop.999.` are dropped; those of `again.` come back twice, then they stay. */
    static BrokerPlugin[] plugins(BrokerService broker, String user, String password) {
        List<BrokerPlugin> plugins = new ArrayList<>();
        plugins.add(next -> new Guard(next, user, password));
        DiscardingDLQBrokerPlugin discarding = new DiscardingDLQBrokerPlugin();
        discarding.setDropAll(false);
        discarding.setDropTemporaryQueues(false);
        discarding.setDropTemporaryTopics(false);
        discarding.setDropOnly("drop\\.[0-9]{3}\\..*");
        plugins.add(discarding);
        if (broker.isSchedulerSupport()) { // the plug-in needs it
            RedeliveryPolicy twice = new RedeliveryPolicy();
            twice.setDestination(new ActiveMQQueue("again.>"));
            twice.setMaximumRedeliveries(2);
            twice.setInitialRedeliveryDelay(1001);
            twice.setRedeliveryDelay(1001); // it takes no delay of a second or less
            RedeliveryPolicyMap map = new RedeliveryPolicyMap();
            map.setRedeliveryPolicyEntries(List.of(twice));
            RedeliveryPlugin again = new RedeliveryPlugin();
            again.setRedeliveryPolicyMap(map);
            plugins.add(again);
        }
        return plugins.toArray(new BrokerPlugin[0]);
    }

    static PolicyMap policies() {
        PolicyEntry shared = new PolicyEntry(); // the broker's own defaults
        shared.setQueue(">");
        PolicyEntry individual = new PolicyEntry();
        individual.setQueue("ind.>");
        IndividualDeadLetterStrategy strategy = new IndividualDeadLetterStrategy();
        strategy.setQueuePrefix("DLQ.");
        strategy.setUseQueueForQueueMessages(true);
        strategy.setProcessNonPersistent(true);
        individual.setDeadLetterStrategy(strategy);
        individual.setExpireMessagesPeriod(1000);
        PolicyEntry wide = new PolicyEntry(); // looks at all messages, not at 400 of them
        wide.setQueue("wide.>");
        wide.setMaxPageSize(100_000);
        wide.setMaxBrowsePageSize(100_000);
        PolicyEntry unaudited = new PolicyEntry(); // its dead-letter queue takes a message id twice
        unaudited.setQueue("unaudited.>");
        SharedDeadLetterStrategy takesAll = new SharedDeadLetterStrategy();
        takesAll.setEnableAudit(false);
        unaudited.setDeadLetterStrategy(takesAll);
        PolicyMap map = new PolicyMap();
        map.setPolicyEntries(List.of(shared, individual, wide, unaudited));
        return map;
    }

    /** The default virtual topics, unmarked ones, and composite queues. `fan.kept` keeps the message, too. */
    static DestinationInterceptor fanOut() {
        VirtualDestinationInterceptor interceptor = new VirtualDestinationInterceptor();
        VirtualTopic unmarked = new VirtualTopic();
        unmarked.setName("Unmarked.>");
        unmarked.setSetOriginalDestination(false);
        interceptor.setVirtualDestinations(new VirtualDestination[] {
            new VirtualTopic(), unmarked, composite("fan.both", true, true), composite("fan.kept", false, true),
            composite("fan.shared", true, false)});
        return interceptor;
    }

    static CompositeQueue composite(String name, boolean forwardOnly, boolean copyMessage) {
        CompositeQueue queue = new CompositeQueue();
        queue.setName(name);
        queue.setForwardOnly(forwardOnly);
        queue.setCopyMessage(copyMessage);
        queue.setForwardTo(List.of(new ActiveMQQueue(name + ".a"), new ActiveMQQueue(name + ".b")));
        return queue;
    }

    static void stop(BrokerService broker) {
        try {
            broker.stop();
        } catch (Exception ignored) {
            // The process ends anyway.
        }
    }

    /** Login and permissions. The broker's own plug-in would need one more jar and its configuration files. */
    static class Guard extends BrokerFilter {
        private final String user;
        private final String password;

        Guard(Broker next, String user, String password) {
            super(next);
            this.user = user;
            this.password = password;
        }

        @Override
        public void addConnection(ConnectionContext context, ConnectionInfo info) throws Exception {
            if (!user.equals(info.getUserName()) || !password.equals(info.getPassword())) {
                throw new SecurityException("User name [" + info.getUserName() + "] or password is invalid.");
            }
            super.addConnection(context, info);
        }

        @Override
        public Subscription addConsumer(ConnectionContext context, ConsumerInfo info) throws Exception {
            check("read from", info.getDestination());
            return super.addConsumer(context, info);
        }

        @Override
        public void addProducer(ConnectionContext context, ProducerInfo info) throws Exception {
            check("write to", info.getDestination());
            super.addProducer(context, info);
        }

        @Override
        public void send(ProducerBrokerExchange exchange, Message message) throws Exception {
            check("write to", message.getDestination());
            super.send(exchange, message);
        }

        private void check(String verb, ActiveMQDestination destination) {
            if (destination != null && destination.getPhysicalName().startsWith("denied.")) {
                throw new SecurityException("User " + user + " is not authorized to " + verb + ": " + destination);
            }
        }
    }
}

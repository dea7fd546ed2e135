import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageEOFException;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A true Java JMS client, driven by one JSON object per line on stdin; answers one per line on stdout.
 * Arguments: the connection factory's class, the broker's URL, user, password. Each command opens its own
 * connection, so the tool outlives its broker.
 */
public class JmsTool {
    private static final long LONG = 30_000; // milliseconds for a message that has been sent

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what libraries print must not mix with the answers
        ConnectionFactory factory = (ConnectionFactory)
            Class.forName(args[0]).getConstructor(String.class).newInstance(args[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{\"ready\":true}");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try (Connection connection = factory.createConnection(args[2], args[3])) {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                answer.put("result", execute(session, command(line)));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            answers.println(Json.write(answer));
            answers.flush();
        }
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> command(String line) {
        return (Map<String, Object>) Json.read(line);
    }

    private static Object execute(Session session, Map<String, Object> c) throws Exception {
        switch ((String) c.get("command")) {
            case "send": return send(session, c);
            case "browse": return browse(session, c);
            case "drain": return drain(session, c);
            case "move": return move(session, c);
            case "count": return browse(session, c).size();
            default: throw new IllegalArgumentException("unknown command " + c.get("command"));
        }
    }

    private static Destination destination(Session session, Map<String, Object> c) throws JMSException {
        String topic = (String) c.get("topic");
        return topic != null ? session.createTopic(topic) : session.createQueue((String) c.get("queue"));
    }

    private static Object send(Session session, Map<String, Object> c) throws Exception {
        byte[] body = Base64.getDecoder().decode((String) c.getOrDefault("body", ""));
        Message message = create(session, (String) c.getOrDefault("kind", "text"), body);
        if (message instanceof MapMessage map && c.get("entries") != null) {
            map.clearBody();
            for (int i = 0; i < number(c, "entries", 0); i++) {
                map.setString("key" + i, new String(body, StandardCharsets.UTF_8));
            }
        }
        headers(session, message, c);
        MessageProducer producer = session.createProducer(destination(session, c));
        boolean persistent = !Boolean.FALSE.equals(c.get("persistent"));
        producer.setDeliveryMode(persistent ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
        producer.setPriority((int) number(c, "priority", Message.DEFAULT_PRIORITY));
        producer.setTimeToLive(number(c, "ttl", 0));
        int copies = (int) number(c, "copies", 1);
        for (int i = 0; i < copies; i++) {
            if (copies > 1) {
                message.setIntProperty("number", i);
            }
            producer.send(message);
        }
        return message.getJMSMessageID();
    }

    private static long number(Map<String, Object> c, String name, long otherwise) {
        return c.get(name) == null ? otherwise : ((Number) c.get(name)).longValue();
    }

    private static Message create(Session session, String kind, byte[] body) throws JMSException {
        String text = new String(body, StandardCharsets.UTF_8);
        switch (kind) {
            case "text": return session.createTextMessage(text);
            case "null-text": return session.createTextMessage();
            case "object": return session.createObjectMessage(text);
            case "empty": return session.createMessage();
            case "bytes":
                BytesMessage bytes = session.createBytesMessage();
                bytes.writeBytes(body);
                return bytes;
            case "map":
                MapMessage map = session.createMapMessage();
                map.setString("text", text);
                map.setInt("number", 42);
                map.setBoolean("flag", true);
                map.setBytes("bytes", body);
                return map;
            case "stream":
                StreamMessage stream = session.createStreamMessage();
                stream.writeString(text);
                stream.writeInt(42);
                stream.writeBoolean(true);
                return stream;
            default: throw new IllegalArgumentException("unknown kind " + kind);
        }
    }

    private static void headers(Session session, Message message, Map<String, Object> c) throws JMSException {
        if (c.get("correlationId") != null) {
            message.setJMSCorrelationID((String) c.get("correlationId"));
        }
        if (c.get("correlationBytes") != null) {
            message.setJMSCorrelationIDAsBytes(Base64.getDecoder().decode((String) c.get("correlationBytes")));
        }
        if (c.get("replyTo") != null) {
            message.setJMSReplyTo(session.createQueue((String) c.get("replyTo")));
        }
        if (c.get("type") != null) {
            message.setJMSType((String) c.get("type"));
        }
        if (c.get("group") != null) {
            message.setStringProperty("JMSXGroupID", (String) c.get("group"));
        }
        if (c.get("properties") instanceof Map<?, ?> properties) {
            for (Map.Entry<?, ?> entry : properties.entrySet()) {
                List<?> typed = (List<?>) entry.getValue();
                message.setObjectProperty((String) entry.getKey(), convert((String) typed.get(0), typed.get(1)));
            }
        }
    }

    private static Object convert(String type, Object value) {
        switch (type) {
            case "byte": return ((Number) value).byteValue();
            case "short": return ((Number) value).shortValue();
            case "int": return ((Number) value).intValue();
            case "long": return ((Number) value).longValue();
            case "float": return ((Number) value).floatValue();
            case "double": return ((Number) value).doubleValue();
            default: return value;
        }
    }

    private static List<Object> browse(Session session, Map<String, Object> c) throws Exception {
        List<Object> found = new ArrayList<>();
        QueueBrowser browser = session.createBrowser(
            session.createQueue((String) c.get("queue")), (String) c.get("selector"));
        Enumeration<?> messages = browser.getEnumeration();
        while (messages.hasMoreElements()) {
            found.add(describe((Message) messages.nextElement()));
        }
        close(browser);
        return found;
    }

    private static List<Object> drain(Session session, Map<String, Object> c) throws Exception {
        List<Object> found = new ArrayList<>();
        long timeout = number(c, "timeout", 1000);
        long limit = number(c, "limit", Long.MAX_VALUE);
        String end = (String) c.get("end"); // body of a message behind all others
        if (end != null) {
            MessageProducer producer = session.createProducer(destination(session, c));
            producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            producer.send(session.createTextMessage(end));
        }
        MessageConsumer consumer = session.createConsumer(destination(session, c), (String) c.get("selector"));
        while (found.size() < limit) {
            long wait = end != null ? LONG : timeout;
            Message message = wait == 0 ? consumer.receiveNoWait() : consumer.receive(wait);
            if (message == null) {
                break;
            }
            if (end != null && message instanceof TextMessage text && end.equals(text.getText())) {
                end = null;
                continue;
            }
            found.add(describe(message));
        }
        close(consumer);
        return found;
    }

    /**
     * What was received is known by now, and the connection ends with the command: a broker that answers late, as
     * RabbitMQ does on a busy machine, changes nothing.
     */
    private static void close(AutoCloseable link) {
        try {
            link.close();
        } catch (Exception error) {
            System.err.println("not closed in time: " + error);
        }
    }

    /** Sends on what it received, as the same message object: with all the properties that it came with. */
    private static Object move(Session session, Map<String, Object> c) throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue((String) c.get("target")));
        long limit = number(c, "limit", 1);
        long moved = 0;
        MessageConsumer consumer = session.createConsumer(destination(session, c), (String) c.get("selector"));
        for (; moved < limit; moved++) {
            Message message = consumer.receive(number(c, "timeout", 1000));
            if (message == null) {
                break;
            }
            producer.send(message);
        }
        close(consumer);
        return moved;
    }

    private static Map<String, Object> describe(Message m) throws Exception {
        Map<String, Object> d = new LinkedHashMap<>();
        body(d, m);
        Map<String, Object> properties = new LinkedHashMap<>();
        for (Object name : Collections.list(m.getPropertyNames())) {
            Object value = m.getObjectProperty((String) name);
            properties.put((String) name, List.of(typeName(value), value == null ? "" : value));
        }
        d.put("properties", properties);
        d.put("messageId", m.getJMSMessageID());
        d.put("persistent", m.getJMSDeliveryMode() == DeliveryMode.PERSISTENT);
        d.put("redelivered", m.getJMSRedelivered());
        d.put("correlationId", correlation(m));
        byte[] correlation = correlationBytes(m);
        d.put("correlationBytes", correlation == null ? null : Base64.getEncoder().encodeToString(correlation));
        d.put("destination", m.getJMSDestination() == null ? null : m.getJMSDestination().toString());
        d.put("replyTo", m.getJMSReplyTo() == null ? null : m.getJMSReplyTo().toString());
        d.put("type", m.getJMSType());
        d.put("priority", m.getJMSPriority());
        d.put("timestamp", m.getJMSTimestamp());
        d.put("expiration", m.getJMSExpiration());
        return d;
    }

    private static String correlation(Message m) {
        try {
            return m.getJMSCorrelationID();
        } catch (JMSException | RuntimeException error) {
            return null; // a binary one has no text
        }
    }

    private static byte[] correlationBytes(Message m) {
        try {
            return m.getJMSCorrelationIDAsBytes();
        } catch (JMSException | RuntimeException error) {
            return null;
        }
    }

    private static String typeName(Object value) {
        return value == null ? "null" : value instanceof Integer ? "int"
            : value.getClass().getSimpleName().toLowerCase();
    }

    private static void body(Map<String, Object> d, Message m) throws Exception {
        byte[] body = null;
        if (m instanceof TextMessage text) {
            d.put("kind", "text");
            body = text.getText() == null ? null : text.getText().getBytes(StandardCharsets.UTF_8);
        } else if (m instanceof BytesMessage bytes) {
            d.put("kind", "bytes");
            body = new byte[(int) bytes.getBodyLength()];
            bytes.reset();
            bytes.readBytes(body);
        } else if (m instanceof MapMessage map) {
            d.put("kind", "map");
            Map<String, Object> entries = new LinkedHashMap<>();
            for (Object name : Collections.list(map.getMapNames())) {
                entries.put((String) name, plain(map.getObject((String) name)));
            }
            d.put("value", entries);
        } else if (m instanceof StreamMessage stream) {
            d.put("kind", "stream");
            d.put("value", items(stream));
        } else if (m instanceof ObjectMessage object) {
            d.put("kind", "object");
            d.put("value", plain(object.getObject()));
        } else {
            d.put("kind", "empty");
        }
        d.put("body", body == null ? null : Base64.getEncoder().encodeToString(body));
    }

    private static List<Object> items(StreamMessage stream) throws JMSException {
        List<Object> items = new ArrayList<>();
        stream.reset();
        try {
            while (true) {
                items.add(plain(stream.readObject()));
            }
        } catch (MessageEOFException end) {
            return items;
        }
    }

    private static Object plain(Object value) {
        return value instanceof byte[] bytes ? Base64.getEncoder().encodeToString(bytes) : value;
    }
}

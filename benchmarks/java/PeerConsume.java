import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;

/**
 * The Java peer: consumes N messages with individual acknowledgement through the ActiveMQ client, its redelivery
 * policy in place, reading the body and one property of each. Prints messages per second, from the first message
 * to the broker's answer to the close.
 * Arguments: URL USER PASSWORD QUEUE N
 */
public class PeerConsume {
  public static void main(String[] a) throws Exception {
    int n = Integer.parseInt(a[4]);
    ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(a[0] + "?jms.redeliveryPolicy.maximumRedeliveries=4"
        + "&jms.prefetchPolicy.queuePrefetch=1000&jms.watchTopicAdvisories=false");
    Connection connection = factory.createConnection(a[1], a[2]);
    connection.start();
    Session session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
    MessageConsumer consumer = session.createConsumer(session.createQueue(a[3]));
    long start = 0;
    for (int i = 0; i < n; i++) {
      Message m = consumer.receive(10000);
      if (m == null) throw new IllegalStateException("only " + i + " messages came");
      if (i == 0) start = System.nanoTime();
      byte[] body = new byte[(int) ((BytesMessage) m).getBodyLength()];
      ((BytesMessage) m).readBytes(body);
      if (body.length != 256 || m.getStringProperty("xid") == null) throw new IllegalStateException("wrong message");
      m.acknowledge();
    }
    consumer.close();
    System.out.println(n / ((System.nanoTime() - start) / 1e9));
    connection.close();
  }
}

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * The Java peer over AMQP 1.0: consumes N messages with Qpid JMS and individual acknowledgement, reading the body and
 * one property of each. Prints messages per second, from the first message to the broker's answer to the close.
 * Arguments: URL USER PASSWORD QUEUE N
 */
public class PeerConsumeAmqp {
  private static final int INDIVIDUAL_ACKNOWLEDGE = 101; // Qpid JMS' own mode

  public static void main(String[] a) throws Exception {
    int n = Integer.parseInt(a[4]);
    JmsConnectionFactory factory = new JmsConnectionFactory(a[0] + (a[0].contains("?") ? "&" : "?") + "jms.prefetchPolicy.all=1000");
    Connection connection = factory.createConnection(a[1], a[2]);
    connection.start();
    Session session = connection.createSession(false, INDIVIDUAL_ACKNOWLEDGE);
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

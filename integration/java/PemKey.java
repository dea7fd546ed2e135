import java.io.FileInputStream;
import java.security.Key;
import java.security.KeyStore;
import java.util.Base64;

/** Prints the private key of a PKCS12 key store as PEM, which keytool cannot. Arguments: store, password, alias. */
public class PemKey {
    public static void main(String[] args) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (FileInputStream in = new FileInputStream(args[0])) {
            store.load(in, args[1].toCharArray());
        }
        Key key = store.getKey(args[2], args[1].toCharArray());
        System.out.println("-----BEGIN PRIVATE KEY-----");
        System.out.println(Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(key.getEncoded()));
        System.out.println("-----END PRIVATE KEY-----");
    }
}

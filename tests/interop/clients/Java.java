// Java's own WebSocket client (java.net.http) against an echo server: sizes, fragments, a ping, the closing handshake.
//
// usage: java Java URL    prints "ok" and ends with 0 when everything came back as it left;
// -Djavax.net.ssl.trustStore=... for wss

import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class Java implements WebSocket.Listener {
    static final long PATIENCE = 30;
    final BlockingQueue<Object> events = new LinkedBlockingQueue<>();
    final StringBuilder text = new StringBuilder();
    final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    @Override
    public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean last) {
        text.append(data);
        if (last) {
            events.add(text.toString());
            text.setLength(0);
        }
        socket.request(1);
        return null;
    }

    @Override
    public CompletionStage<?> onBinary(WebSocket socket, ByteBuffer data, boolean last) {
        byte[] part = new byte[data.remaining()];
        data.get(part);
        bytes.writeBytes(part);
        if (last) {
            events.add(bytes.toByteArray());
            bytes.reset();
        }
        socket.request(1);
        return null;
    }

    @Override
    public CompletionStage<?> onPong(WebSocket socket, ByteBuffer data) {
        byte[] copy = new byte[data.remaining()];
        data.get(copy);
        events.add("pong " + new String(copy));
        socket.request(1);
        return null;
    }

    @Override
    public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
        events.add("closed " + code + " " + reason);
        return null;
    }

    @Override
    public void onError(WebSocket socket, Throwable error) {
        events.add("error " + error);
    }

    void expect(Object wanted) throws Exception {
        Object got = events.poll(PATIENCE, TimeUnit.SECONDS);
        boolean same = wanted instanceof byte[] && got instanceof byte[]
                ? Arrays.equals((byte[]) wanted, (byte[]) got) : wanted.equals(got);
        if (!same) {
            String shown = String.valueOf(got);
            throw new Exception("got " + shown.substring(0, Math.min(80, shown.length())));
        }
    }

    static void done(java.util.concurrent.CompletableFuture<WebSocket> sent) throws Exception {
        sent.get(PATIENCE, TimeUnit.SECONDS);
    }

    void run(String url) throws Exception {
        WebSocket socket = HttpClient.newHttpClient().newWebSocketBuilder().buildAsync(URI.create(url), this)
                .get(PATIENCE, TimeUnit.SECONDS);
        for (int size : new int[] {0, 1, 125, 126, 65535, 65536, 1 << 20}) {
            String letters = "t".repeat(size);
            done(socket.sendText(letters, true));
            expect(letters);
            byte[] binary = new byte[size];
            Arrays.fill(binary, (byte) 0xff);
            done(socket.sendBinary(ByteBuffer.wrap(binary), true));
            expect(binary);
        }
        done(socket.sendText("frag\u00fc", false));
        done(socket.sendText("", false));
        done(socket.sendText("mented", true));
        expect("frag\u00fcmented");
        done(socket.sendPing(ByteBuffer.wrap("are you there".getBytes())));
        expect("pong are you there");
        done(socket.sendClose(WebSocket.NORMAL_CLOSURE, "bye"));
        expect("closed 1000 bye");
    }

    public static void main(String[] args) {
        try {
            new Java().run(args[0]);
            System.out.println("ok");
            System.exit(0);
        } catch (Exception error) {
            System.out.println("java: " + error + (error.getCause() == null ? "" : " " + error.getCause()));
            System.exit(1);
        }
    }
}

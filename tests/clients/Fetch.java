import java.net.Authenticator;
import java.net.PasswordAuthentication;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

class Fetch {
    public static void main(String[] words) throws Exception {
        var header = words[0].split(": ");
        var builder = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.NORMAL);
        var user = System.getProperty("proxy.user");
        if (user != null) {
            var password = System.getProperty("proxy.password").toCharArray();
            builder.authenticator(new Authenticator() {
                @Override
                protected PasswordAuthentication getPasswordAuthentication() {
                    return getRequestorType() == RequestorType.PROXY ? new PasswordAuthentication(user, password) : null;
                }
            });
        }
        var client = builder.build();
        for (int i = 1; i < words.length; i++) {
            var request = HttpRequest.newBuilder(URI.create(words[i])).header(header[0], header[1]).build();
            var answer = client.send(request, BodyHandlers.ofByteArray());
            if (answer.statusCode() >= 400) {
                System.out.println(answer.statusCode() + " " + answer.headers().firstValue("Proxy-Status").orElse(""));
            }
            System.out.write(answer.body());
        }
        System.out.flush();
    }
}

package Kvroute::Recorder;

# Servers that record their requests, and answer as the request asks:
#
#     recorder($t, NAME, ANSWER)
#
# The header X-<NAME> of a request, or X-<first letter of NAME>, is a list of actions:
#
#     wait FILE    waits until the file is there
#     status N     answers with that status, and a body of JSON
#     say TEXT     answers with the rest of the header
#     gzip         answers, marked as compressed
#     bytes        answers in chunks of a byte
#     head         sends the head of a stream
#     event, end   and an event of it, and its end
#     flood N      and N bytes
#     step FILE    makes the file
#     reset, close ends the connection
#     cut          answers, all but the last byte
#     hold         waits until the other side leaves
#     met ...      does the rest if the body names a meeting, else answers
#
# Without it the server answers with ANSWER.  Requests are in the file <first letter of
# NAME>.sent, one JSON text a line.  A client that leaves before the answer adds a line
# { name, gone, head }.

use strict;
use warnings;

use JSON::PP;
use Socket qw(SOL_SOCKET SO_LINGER);
use Exporter 'import';

our @EXPORT = qw(recorder sent);


sub recorder {
    my ($t, $name, $answer) = @_;

    my $kind = substr($name, 0, 1);
    my $file = "$t->{dir}/$kind.sent";

    return $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (my ($head, $body)
               = Kvroute::Servers::backend_read($c, \$data))
        {
            note($file, { name => $name, head => $head, body => $body });

            my ($do) = $head =~ /^X-$name: (.*?)\r?$/mi;
            ($do) = $head =~ /^X-$kind: (.*?)\r?$/mi unless defined $do;

            $do //= 'plain';
            $do = 'plain' if $do =~ s/^met // && $body !~ /bootstrap/;

            my $end = answer($t, $c, $answer, split / /, $do);

            note($file, { name => $name, gone => 1, head => $head })
                if $end eq 'gone';
            last if $end;
        }
    });
}


# Performs the actions; returns whether the connection has ended, and by which side

sub answer {
    my ($t, $c, $answer, @do) = @_;

    while (defined(my $do = shift @do)) {

        if ($do eq 'wait') {
            my $file = "$t->{dir}/" . shift @do;

            while (!-e $file) {
                return 'gone' if gone($c);
            }

        } elsif ($do eq 'status') {
            whole($c, shift @do, '{"error":"no"}');

        } elsif ($do eq 'plain') {
            whole($c, 200, $answer);

        } elsif ($do eq 'say') {
            whole($c, 200, join ' ', splice @do);

        } elsif ($do eq 'gzip') {
            whole($c, 200, $answer, "Content-Encoding: gzip\r\n");

        } elsif ($do eq 'bytes') {
            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                         . "Transfer-Encoding: chunked\r\n\r\n");
            syswrite($c, "1\r\n$_\r\n") for split //, $answer;
            syswrite($c, "0\r\n\r\n");

        } elsif ($do eq 'cut') {
            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: "
                         . length($answer) . "\r\n\r\n" . substr($answer, 0, -1));
            return 'closed';

        } elsif ($do eq 'head') {
            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream"
                         . "\r\nTransfer-Encoding: chunked\r\n\r\n");

        } elsif ($do eq 'event') {
            my $event = "data: {\"choices\":[{\"text\":\"The\"}]}\n\n";
            syswrite($c, sprintf("%x\r\n%s\r\n", length $event, $event));

        } elsif ($do eq 'flood') {
            my $left = shift @do;

            while ($left > 0) {
                my $part = ':' x 65536;
                $left -= syswrite($c, sprintf("%x\r\n%s\r\n", length $part,
                                              $part)) // return 'gone';
            }

        } elsif ($do eq 'step') {
            $t->step(shift @do);

        } elsif ($do eq 'end') {
            syswrite($c, "0\r\n\r\n");

        } elsif ($do eq 'hold') {
            1 until gone($c);
            return 'gone';

        } elsif ($do eq 'reset') {
            $c->setsockopt(SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
            return 'closed';

        } else {
            return 'closed';
        }
    }

    return '';
}


sub whole {
    my ($c, $status, $text, $headers) = @_;

    syswrite($c, "HTTP/1.1 $status X\r\nContent-Type: application/json\r\n"
                 . ($headers // '') . 'Content-Length: ' . length($text) . "\r\n\r\n$text");
}


# Returns whether the other side leaves within a while

sub gone {
    my ($c) = @_;

    my $bits = '';
    vec($bits, fileno $c, 1) = 1;

    return select($bits, undef, undef, 0.01) && !sysread($c, my $byte, 1);
}


sub note {
    my ($file, $what) = @_;

    open my $fh, '>>', $file;
    syswrite($fh, encode_json($what) . "\n");
    close $fh;
}


# Returns the requests of servers of a kind, and the clients that left

sub sent {
    my ($t, $kind) = @_;

    my $file = "$t->{dir}/$kind.sent";

    # the last line may be incomplete

    my @lines = -e $file ? Kvroute::slurp($file) =~ /^(.*)\n/mg : ();

    return map { decode_json($_) } @lines;
}


1;

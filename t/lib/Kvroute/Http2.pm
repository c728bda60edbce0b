package Kvroute::Http2;

# The part of HTTP/2 that tests need, over a connection to the port %%H2%%:
#
#     my $s = h2_connect($t);
#     h2_post($s, STREAM, PATH, BODY, name => value, ...);    # or BODY a list of pieces
#     h2_reset($s, STREAM);
#     my ($status) = h2_status($s, STREAM);
#     my $ended = h2_ended($s, N);
#
# h2_status() returns 200, 0 for another status or a closed connection, -1 for a reset
# stream.  h2_ended() waits until N streams have ended and returns their number.

use strict;
use warnings;

use IO::Select;
use Exporter 'import';

our @EXPORT = qw(h2_connect h2_post h2_reset h2_status h2_ended);

use constant { DATA => 0, HEADERS => 1, RESET => 3, SETTINGS => 4 };
use constant { END_STREAM => 1, END_HEADERS => 4, CANCEL => 8 };


sub h2_connect {
    my ($t) = @_;

    my $s = $t->connect($t->{vars}{H2}) or die "connect: $!";

    syswrite $s, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(SETTINGS, 0, 0, '');

    return $s;
}


sub h2_post {
    my ($s, $stream, $path, $body, @headers) = @_;

    my @pieces = ref $body ? @$body : $body;
    my $last = pop @pieces;

    syswrite $s, frame(HEADERS, END_HEADERS, $stream,
                       literals(':method', 'POST', ':scheme', 'http',
                                ':path', $path, ':authority', 'localhost',
                                'content-type', 'application/json', @headers))
                 . join('', map { frame(DATA, 0, $stream, $_) } @pieces)
                 . frame(DATA, END_STREAM, $stream, $last);
}


sub h2_reset {
    my ($s, $stream) = @_;

    syswrite $s, frame(RESET, 0, $stream, pack('N', CANCEL));
}


sub h2_status {
    my ($s, $stream) = @_;

    my $status = 0;

    read_frames($s, sub {
        my ($type, $flags, $id, $payload) = @_;

        return 0 if $id != $stream;

        # 200 is in the static table

        $status = 200 if $type == HEADERS && $payload =~ /\x88/;
        $status = -1 if $type == RESET;

        return $type == RESET || $type <= HEADERS && $flags & END_STREAM;
    }) or return 0;

    return $status;
}


sub h2_ended {
    my ($s, $n) = @_;

    my %ended;

    read_frames($s, sub {
        my ($type, $flags, $id) = @_;

        $ended{$id} = 1 if $type <= HEADERS && $flags & END_STREAM;

        return keys %ended == $n;
    });

    return scalar(keys %ended);
}


# until the last one, or the end of the connection

sub read_frames {
    my ($s, $last) = @_;

    my $data = '';

    while (1) {
        if (length $data >= 9) {
            my $size = unpack('N', "\0" . substr($data, 0, 3));

            if (length $data >= 9 + $size) {
                my $frame = substr($data, 0, 9 + $size, '');

                return 1 if $last->(unpack('x3 CCN', $frame), substr($frame, 9));
                next;
            }
        }

        return 0 unless IO::Select->new($s)->can_read(60)
                        && sysread $s, $data, 65536, length $data;
    }
}


sub frame {
    my ($type, $flags, $stream, $payload) = @_;

    return substr(pack('N', length $payload), 1)
           . pack('CCN', $type, $flags, $stream) . $payload;
}


# headers without indexing and without Huffman's code

sub literals {
    my $out = '';

    while (my ($name, $value) = splice @_, 0, 2) {
        $out .= "\0" . pack('C/a* C/a*', $name, $value);
    }

    return $out;
}


1;

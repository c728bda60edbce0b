package Kvroute::Client;

# Requests as HTTP clients make them, well-behaved ones and others.

use strict;
use warnings;

use Exporter qw(import);
use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time sleep);

our @EXPORT_OK = qw(chat popular text);


sub get {
    my ($t, $uri, %arg) = @_;

    return $t->request("GET $uri", undef, %arg);
}


sub post {
    my ($t, $uri, $body, %arg) = @_;

    return $t->request("POST $uri", $body, %arg);
}


sub request {
    my ($t, $line, $body, %arg) = @_;

    my $s = $t->start($line, $body, %arg) or return { status => 0 };

    return $t->finish($s, $arg{timeout});
}


# Sends a request; returns the connection

sub start {
    my ($t, $line, $body, %arg) = @_;

    my $s = $arg{socket} || $t->connect($arg{port}) or return;

    delete ${*$s}{read};

    my $version = $arg{version} || '1.1';
    my $headers = $arg{headers} || {};
    my $text = "$line HTTP/$version\r\n";

    $text .= "Host: " . ($arg{host} || 'localhost') . "\r\n"
        unless $arg{no_host};
    $text .= "Connection: close\r\n" unless $arg{socket} || $arg{keep};

    if (defined $body) {
        $text .= "Content-Type: application/json\r\n"
            unless grep { lc eq 'content-type' } keys %$headers;

        if ($arg{chunked}) {
            $text .= "Transfer-Encoding: chunked\r\n";

        } elsif (!$arg{no_length}) {
            $text .= "Content-Length: " . ($arg{length} // length $body)
                     . "\r\n";
        }
    }

    $text .= "$_: $headers->{$_}\r\n" for keys %$headers;
    $text .= "\r\n";

    if (defined $body) {
        if ($arg{chunked}) {
            my $size = $arg{chunked};

            for (my $i = 0; $i < length $body; $i += $size) {
                my $part = substr($body, $i, $size);
                $text .= sprintf("%x\r\n", length $part) . "$part\r\n";
            }

            $text .= "0\r\n\r\n";

        } else {
            $text .= $body;
        }
    }

    my $off = 0;

    if ($arg{pieces}) {

        # in pieces, so that nginx reads them one by one

        while ($off < length $text) {
            my $n = syswrite($s, $text, $arg{pieces}, $off) or last;
            $off += $n;
            sleep 0.001;
        }

    } else {
        while ($off < length $text) {
            my $n = syswrite($s, $text, length($text) - $off, $off) or last;
            $off += $n;
        }
    }

    return $s;
}


sub connect {
    my ($t, $port) = @_;

    my $s = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $port || $t->{vars}{PORT},
        Proto => 'tcp') or return;

    $s->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);

    return $s;
}


# Reads a response to its end

sub finish {
    my ($t, $s, $timeout) = @_;

    my $end = time() + ($timeout || 300);
    my $data = delete ${*$s}{read} // '';
    my $complete;

    while (!($complete = complete($data))) {
        my $left = $end - time();

        last if $left <= 0 || !IO::Select->new($s)->can_read($left);
        last unless sysread($s, $data, 65536, length $data);
    }

    return parse($data, $complete);
}


# Reads until the response contains something, e.g. a first event; finish() returns
# this part, too

sub read_until {
    my ($t, $s, $re, $timeout) = @_;

    my $end = time() + ($timeout || 300);

    ${*$s}{read} //= '';

    while (${*$s}{read} !~ $re) {
        my $left = $end - time();

        return if $left <= 0 || !IO::Select->new($s)->can_read($left);
        return unless sysread($s, ${*$s}{read}, 65536, length ${*$s}{read});
    }

    return ${*$s}{read};
}


sub complete {
    my ($data) = @_;

    my $n = index($data, "\r\n\r\n");
    return 0 if $n < 0;

    my $head = substr($data, 0, $n);
    my $have = length($data) - $n - 4;

    return 1 if $head =~ m{^HTTP/\S+ (?:1\d\d|204|304)};
    return $have >= $1 if $head =~ /^Content-Length: (\d+)/mi;

    return substr($data, $n + 4) =~ /(?:^|\r\n)0\r\n\r\n\z/
        if $head =~ /^Transfer-Encoding: chunked/mi;

    return 0;
}


sub parse {
    my ($data, $complete) = @_;

    my ($head, $body) = split /\r\n\r\n/, $data, 2;

    return { status => 0, body => '', headers => {} }
        unless defined $head && $head =~ m{^HTTP/\S+ (\d+)};

    my $r = { status => $1, head => $head, complete => $complete ? 1 : 0,
              headers => {} };

    for my $h ((split /\r\n/, $head)[1 .. ($head =~ tr/\n//)]) {
        my ($k, $v) = split /:\s*/, $h, 2;
        $r->{headers}{lc $k} = $v;
    }

    $body //= '';

    if (lc($r->{headers}{'transfer-encoding'} || '') eq 'chunked') {
        my $plain = '';

        while ($body =~ s/^([0-9a-fA-F]+)[^\r\n]*\r\n//) {
            my $n = hex $1;
            last if $n == 0;
            $plain .= substr($body, 0, $n, '');
            $body =~ s/^\r\n//;
        }

        $body = $plain;
    }

    $r->{body} = $body;

    return $r;
}


# Returns a chat request: text() or any string as the user's message, or messages

sub chat {
    my ($user, %arg) = @_;

    # JSON::PP needs 160 bytes of memory for each character

    if (!ref $user && length $user > 1_000_000 && $user !~ /[^ !#-\[\]-~]/) {
        return chat('%%', %arg) =~ s/"%%"/"$user"/r;
    }

    my $messages = ref $user ? $user : [ { role => 'user', content => $user } ];

    return JSON::PP->new->canonical->latin1->encode({
        model => 'm', max_tokens => 2, messages => $messages, %arg });
}


# Returns text of this length; each seed has its own

my %text;

sub text {
    my ($len, $seed) = @_;

    $seed //= 0;

    return substr($text{$seed}, 0, $len)
        if defined $text{$seed} && length $text{$seed} >= $len;

    my @words;
    my $n = 0;
    my $x = 12345 + 7919 * $seed;

    while ($n < $len) {
        $x = ($x * 1103515245 + 12345) % 2147483648;
        push @words, ('a' .. 'z')[($x >> 8) % 26] . $x;
        $n += length($words[-1]) + 1;
    }

    $text{$seed} = join ' ', @words;

    return substr($text{$seed}, 0, $len);
}


# Returns a sub that draws one of this many prompts of 4 KB, with one of four
# prefixes.  The n-th is drawn 1/(n+10) as often: a larger cache always has more of
# them, and only the largest has all.

sub popular {
    my ($n) = @_;

    my @prompt = map {
        chat(text(1200, $_ % 4) . ' ' . text(2800, 100 + $_), max_tokens => 1)
    } 0 .. $n - 1;

    my @upto = (0);
    push @upto, $upto[-1] + 1 / ($_ + 10) for 0 .. $#prompt;

    return sub {
        my $x = rand $upto[-1];
        my ($low, $high) = (0, $#prompt);

        while ($low < $high) {
            my $middle = int(($low + $high) / 2);
            $upto[$middle + 1] > $x ? ($high = $middle) : ($low = $middle + 1);
        }

        return $prompt[$low];
    };
}


1;

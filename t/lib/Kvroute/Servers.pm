package Kvroute::Servers;

# Servers behind nginx: emulated engines, and small servers that misbehave on request.

use strict;
use warnings;

use IO::Socket::INET;
use JSON::PP;
use POSIX qw(:sys_wait_h);
use Socket qw(SOL_SOCKET SO_LINGER);


# Starts emulated engines; their ports are %%E0%%, %%E1%%, ...

sub engines {
    my ($t, $n, @args) = @_;

    my @ports = $t->ports($n);
    my $base = keys(%{$t->{engine_pid} || {}});

    $t->start_engine($ports[0], $n, @args);

    for my $i (0 .. $n - 1) {
        $t->{vars}{'E' . ($base + $i)} = $ports[$i];
    }

    push @{$t->{engine_ports}}, @ports;

    return @ports;
}


sub start_engine {
    my ($t, $port, $n, @args) = @_;

    my $log = "$t->{dir}/engine-$port.log";
    my $pid = $t->spawn($log, $t->{engine}, '--port', $port, '--count', $n,
                        @args);

    $t->{engine_pid}{$port + $_} = $pid for 0 .. $n - 1;

    Kvroute::wait_for(sub {
        die "engine failed: " . Kvroute::slurp($log) if waitpid($pid, WNOHANG) == $pid;
        return Kvroute::slurp($log) =~ /^ready/m;
    }) or die "engine does not start: " . Kvroute::slurp($log);

    return $pid;
}


sub kill_engine {
    my ($t, $port, $signal) = @_;

    my $pid = $t->{engine_pid}{$port};

    kill $signal || 'KILL', $pid;
    waitpid($pid, 0);
    $t->{children} = [ grep { $_ != $pid } @{$t->{children}} ];
}


# Reads or changes the state of an engine

sub control {
    my ($t, $port, $what) = @_;

    my $r = defined $what
        ? $t->post('/control', encode_json($what), port => $port)
        : $t->get('/control', port => $port);

    return eval { decode_json($r->{body}) };
}


# Starts a small server: runs a sub for each connection to its port

sub serve {
    my ($t, $name, $sub, %arg) = @_;

    my $server = IO::Socket::INET->new(Listen => 128, ReuseAddr => 1,
                                       LocalAddr => $arg{addr} || '127.0.0.1',
                                       LocalPort => $arg{port})
        or die "listen: $!";

    my $port = $server->sockport();
    $t->{taken}{$port}++;
    $t->{vars}{$name} = $port;

    my $pid = fork();
    die "fork: $!" unless defined $pid;

    if ($pid == 0) {

        # Its own process group, so that cleanup kills all its connections. Its
        # output is closed: the test harness waits for the end of that.

        setpgrp(0, 0);
        open STDOUT, '>', '/dev/null';
        $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
        $SIG{CHLD} = 'IGNORE';

        while (1) {
            my $c = $server->accept() or next;
            my $child = fork();

            if (defined $child && $child == 0) {
                $SIG{CHLD} = 'DEFAULT';
                eval { $sub->($c) };
                POSIX::_exit(0);
            }

            close $c;
        }
    }

    push @{$t->{groups}}, $pid;

    return $port;
}


# Starts a server that acts as the header X-<NAME> of a request says:
#
#     close        closes the connection instead of answering
#     reset        the same, with an RST
#     status NNN   answers with that status
#     headers      sends the head of a response, then nothing more
#     stall        never answers
#     cut          closes in the middle of the body
#     wait FILE    answers when the file is there
#     lose FILE    closes when the file is there
#     stale        answers, and closes when the next request comes in; also
#                  behind "wait FILE"
#     stream N     sends a comment, and N events as they are asked for: each
#                  when the file of X-Step with that number is there
#     packed N     the same, marked as compressed, with bytes like a comment
#
# Without the header it answers with its name, the path and the number of
# requests on this connection.  X-Rank of the answer is the rank in the request.

sub backend {
    my ($t, $name, %arg) = @_;

    my $dir = $t->{dir};

    return $t->serve($name, sub { backend_connection($name, $dir, @_) }, %arg);
}


sub backend_connection {
    my ($name, $dir, $c) = @_;

    my ($stale, $n, $data) = (0, 0, '');

    while (defined(my $head = backend_read($c, \$data))) {
        my ($do) = $head =~ /^X-$name: (.*?)\r?$/mi;
        my ($path) = $head =~ /^\S+ (\S+)/;
        my ($rank) = $head =~ /^X-Data-Parallel-Rank: (.*?)\r?$/mi;

        $n++;
        $do //= '';

        open my $fh, '>>', "$dir/$name.log";
        print $fh "$path\n";
        close $fh;

        if ($do eq 'close' || $stale) {
            return;

        } elsif ($do eq 'reset') {
            $c->setsockopt(SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
            close $c;
            return;

        } elsif ($do =~ /^status (\d+)/) {
            backend_send($c, $1, "$name $path $n");
            next;

        } elsif ($do eq 'headers') {
            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
            sysread($c, $data, 1);
            return;

        } elsif ($do eq 'cut') {
            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
            return;

        } elsif ($do eq 'stall') {
            sysread($c, $data, 1);
            return;

        } elsif ($do =~ /^lose (\S+)/) {
            my $file = "$dir/$1";
            select(undef, undef, undef, 0.005) while !-e $file;
            return;

        } elsif ($do =~ /^wait (\S+)/) {
            my $file = "$dir/$1";
            select(undef, undef, undef, 0.005) while !-e $file;

        } elsif ($do =~ /^(stream|packed) (\d+)/) {
            my $events = $2;
            my ($coding, $first) = $1 eq 'stream' ? ('', ": ping\n\n")
                : ("Content-Encoding: gzip\r\n", ':packed');

            syswrite($c, "HTTP/1.1 200 OK\r\nConnection: close\r\n$coding"
                         . "Content-Type: text/event-stream\r\n\r\n$first");

            for my $i (1 .. $events) {
                my ($step) = $head =~ /^X-Step: (.*?)\r?$/mi;
                select(undef, undef, undef, 0.005) while !-e "$dir/$step$i";
                syswrite($c, "data: event $i\n\n") or return;
            }

            return;
        }

        $stale = ($do =~ /stale$/);

        backend_send($c, 200, "$name $path $n",
                     defined $rank ? "X-Rank: $rank\r\n" : '');
    }
}


# Returns the name of the backend that answered, and the rank in the request

sub answered_by {
    my ($t, $r) = @_;

    return join ' ', $r->{headers}{'x-backend'} // 'nobody',
                     $r->{headers}{'x-rank'} // 'none';
}


# Reads a request with its body; returns its head, or both

sub backend_read {
    my ($c, $data) = @_;

    while (1) {
        my $n = index($$data, "\r\n\r\n");

        if ($n >= 0) {
            my $head = substr($$data, 0, $n);
            my $len = $head =~ /^Content-Length: (\d+)/mi ? $1 : 0;

            if ($head =~ /^Transfer-Encoding: chunked/mi) {
                my $end = index($$data, "0\r\n\r\n", $n + 4);
                $len = $end < 0 ? 1e9 : $end + 5 - $n - 4;
            }

            if (length($$data) >= $n + 4 + $len) {
                my $body = substr($$data, $n + 4, $len);
                substr($$data, 0, $n + 4 + $len, '');
                return wantarray ? ($head, $body) : $head;
            }
        }

        sysread($c, $$data, 65536, length $$data) or return;
    }
}


sub backend_send {
    my ($c, $status, $body, $headers) = @_;

    syswrite($c, "HTTP/1.1 $status X\r\nContent-Length: " . length($body)
                 . "\r\nX-Backend: " . ($body =~ /^(\S+)/)[0] . "\r\n"
                 . ($headers // '') . "\r\n$body");
}


# Returns the requests of a backend, in order

sub backend_log {
    my ($t, $name) = @_;

    return split /\n/, Kvroute::slurp("$t->{dir}/$name.log");
}


# Returns the lines that servers have added to a file since the last call

sub new_lines {
    my ($t, $file) = @_;

    my $lines = substr(Kvroute::slurp("$t->{dir}/$file"),
                       $t->{lines_read}{$file} // 0);

    # the last one may be incomplete

    $lines =~ s/[^\n]*\z//;
    $t->{lines_read}{$file} += length $lines;

    return split /\n/, $lines;
}


# Makes the file that a backend waits for

sub step {
    my ($t, $file) = @_;

    Kvroute::write_file("$t->{dir}/$file", '');
}


1;

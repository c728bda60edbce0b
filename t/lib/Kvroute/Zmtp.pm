package Kvroute::Zmtp;

# A client for ZeroMQ over TCP: the part of ZMTP 3.0 that a subscriber and a dealer
# need, and MessagePack.
#
#     my $z = Kvroute::Zmtp->new(SUB => $port, 'topic');
#     my ($topic, $seq, $payload) = @{$z->message()};
#     my $batch = unpack_msgpack($payload);
#
#     my $z = Kvroute::Zmtp->new(DEALER => $port);
#     $z->send('', pack('Q>', 0));

use strict;
use warnings;
no warnings qw(recursion);

use Exporter qw(import);
use IO::Select;
use IO::Socket::INET;

our @EXPORT_OK = qw(unpack_msgpack);


sub new {
    my ($class, $type, $port, $topic) = @_;

    my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port)
        or return;
    my $z = bless { socket => $s, in => '' }, $class;

    syswrite $s, "\xff" . "\0" x 8 . "\x7f\x03\x00NULL" . "\0" x 48;
    $z->take(64);

    $z->frame(4, "\x05READY" . join '', map {
        my ($name, $value) = @$_;
        pack('C/a* N/a*', $name, $value);
    } [ 'Socket-Type', $type ], [ 'Identity', '' ]);
    $z->take_frame();

    $z->frame(0, "\x01$topic") if $type eq 'SUB';

    return $z;
}


sub frame {
    my ($z, $flags, $data) = @_;

    syswrite $z->{socket}, length $data < 256
        ? pack('C C/a*', $flags, $data)
        : pack('C Q>', $flags | 2, length $data) . $data;
}


sub send {
    my ($z, @frames) = @_;

    $z->frame($_ < $#frames ? 1 : 0, $frames[$_]) for 0 .. $#frames;
}


# Reads this many bytes; dies if nothing comes

sub take {
    my ($z, $n) = @_;

    while (length $z->{in} < $n) {
        IO::Select->new($z->{socket})->can_read(60) or die "nothing comes\n";
        sysread $z->{socket}, $z->{in}, 65536, length $z->{in} or die "closed\n";
    }

    return substr $z->{in}, 0, $n, '';
}


sub take_frame {
    my ($z) = @_;

    my $flags = ord $z->take(1);
    my $len = $flags & 2 ? unpack('Q>', $z->take(8)) : ord $z->take(1);

    return ($flags, $z->take($len));
}


# Returns the frames of the next message

sub message {
    my ($z) = @_;

    my @frames;

    for ( ;; ) {
        my ($flags, $data) = $z->take_frame();

        next if $flags & 4;

        push @frames, $data;
        return \@frames unless $flags & 1;
    }
}


# strings and blobs are strings, nil is undef

sub unpack_msgpack {
    my ($data) = @_;

    my $at = 0;
    my $value = value(\$data, \$at);

    die "more behind it\n" if $at != length $data;

    return $value;
}


sub bytes {
    my ($data, $at, $n) = @_;

    die "it ends too soon\n" if $$at + $n > length $$data;
    $$at += $n;

    return substr $$data, $$at - $n, $n;
}


my %number = (0xca => [ 'f>', 4 ], 0xcb => [ 'd>', 8 ], 0xcc => [ 'C', 1 ],
              0xcd => [ 'S>', 2 ], 0xce => [ 'L>', 4 ], 0xcf => [ 'Q>', 8 ],
              0xd0 => [ 'c', 1 ], 0xd1 => [ 's>', 2 ], 0xd2 => [ 'l>', 4 ],
              0xd3 => [ 'q>', 8 ]);

my %length = (0xc4 => 'C', 0xc5 => 'S>', 0xc6 => 'L>', 0xd9 => 'C', 0xda => 'S>',
              0xdb => 'L>', 0xdc => 'S>', 0xdd => 'L>', 0xde => 'S>', 0xdf => 'L>');

my %size = ('C' => 1, 'S>' => 2, 'L>' => 4);


sub value {
    my ($data, $at) = @_;

    my $type = ord bytes($data, $at, 1);

    return $type if $type < 0x80;
    return $type - 256 if $type >= 0xe0;
    return undef if $type == 0xc0;
    return $type == 0xc3 if $type == 0xc2 || $type == 0xc3;

    if (my $n = $number{$type}) {
        return unpack $n->[0], bytes($data, $at, $n->[1]);
    }

    my $n = $length{$type} ? unpack $length{$type},
                                    bytes($data, $at, $size{$length{$type}})
          : $type < 0xa0 ? $type & 15 : $type & 31;

    die "it says that it is longer\n" if $n > length $$data;

    return bytes($data, $at, $n)
        if ($type >= 0xa0 && $type < 0xc0) || ($type >= 0xc4 && $type <= 0xc6)
           || ($type >= 0xd9 && $type <= 0xdb);

    return [ map { value($data, $at) } 1 .. $n ]
        if ($type >= 0x90 && $type < 0xa0) || $type == 0xdc || $type == 0xdd;

    return { map { value($data, $at) } 1 .. 2 * $n }
        if ($type >= 0x80 && $type < 0x90) || $type == 0xde || $type == 0xdf;

    die sprintf "no type: %02x\n", $type;
}


1;

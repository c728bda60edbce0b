package Kvroute::House;

# Says where C sources break the rules of the house.  t/house.t has the rules,
# and the table of rooms.  Calls through pointers are seen where the pointer is
# set.

use strict;
use warnings;

use Kvroute::Source;


# A table of rooms as text:
#
#     [folder]                  what follows is in this one
#     FLOOR ROOM  FACE... | PREFIX... | FLAG...
#
# A room is a folder, or "." with some of the files that are in none.

sub rooms {
    my ($table) = @_;
    my (@rooms, $tree);

    for (split /\n/, $table) {
        s/#.*//;

        if (/^\s*\[(\S+)\]/) {
            $tree = $1;
            next;
        }

        my ($floor, $name, $rest) = /^\s*(\d+)\s+(\S+)\s*(.*)/ or next;
        my ($faces, $prefix, $flags) = map { [split ' ', $_ // ''] }
                                       (split /\|/, $rest)[0 .. 2];

        push @rooms, {
            floor => $floor, tree => $tree, faces => { map { $_ => 1 } @$faces },
            name => $name eq '.' ? $tree : "$tree/$name",
            loose => $name eq '.', prefix => $prefix,
            flags => { map { $_ => 1 } @$flags },
        };
    }

    return \@rooms;
}


# The circles of a graph { node => { node => ... } }: its strongly connected
# parts of more than one node (Tarjan).

sub circles {
    my ($graph) = @_;
    my ($n, %order, %low, %on, @stack, @found, $visit) = (0);

    $visit = sub {
        my ($v) = @_;

        $order{$v} = $low{$v} = ++$n;
        $on{$v} = 1;
        push @stack, $v;

        for my $w (sort keys %{$graph->{$v} || {}}) {

            if (!$order{$w}) {
                $visit->($w);
                $low{$v} = $low{$w} if $low{$w} < $low{$v};

            } elsif ($on{$w} && $order{$w} < $low{$v}) {
                $low{$v} = $order{$w};
            }
        }

        return if $low{$v} != $order{$v};

        my @part;

        do {
            push @part, pop @stack;
            delete $on{$part[-1]};
        } while ($part[-1] ne $v);

        push @found, [sort @part] if @part > 1;
    };

    for (sort keys %$graph) {
        $visit->($_) unless $order{$_};
    }

    undef $visit;

    return @found;
}


# the headers that a file has, by itself or by another; and the file

sub reach {
    my ($path, $includes) = @_;
    my %seen;
    my @todo = $path;

    while (@todo) {
        my $next = shift @todo;
        push @todo, keys %{$includes->{$next} || {}} unless $seen{$next}++;
    }

    return \%seen;
}


# Which steps find what breaks a rule, beside place(), which comes first.

my %STEPS = (
    room => [\&sizes], lines => [\&sizes], basename => [],
    face => [\&includes], include => [\&includes],
    upward => [\&includes, \&uses], module => [\&includes, \&uses], sequence => [\&includes, \&uses],
    circle => [\&includes, \&uses, \&circular],
    header => [\&exported], name => [\&exported],
    nginx => [\&core], libc => [\&core], static => [\&core],
    enum => [\&includes, \&counted],
);


# What breaks a rule: [rule, where, what].  A house is made of
#
#     rooms      the table
#     files      the text of each file by its path
#     home       the room which alone may use the functions of the sequence
#     sequence   their names
#     rule       the only rule that is asked for; by default all are
#
# and gets what is found out about it beside these.

sub check {
    my ($house) = @_;
    my $h = { %$house, found => [], count => {}, room => {}, f => {} };

    my @steps = $h->{rule} ? @{$STEPS{$h->{rule}} || die "no rule $h->{rule}"}
                : (\&includes, \&uses, \&circular, \&exported, \&core, \&counted,
                   \&sizes);

    place($h);
    $_->($h) for @steps;

    return $h;
}


sub wrong {
    my ($h, @what) = @_;
    push @{$h->{found}}, \@what;
}


# how many break that rule

sub many {
    my ($h, $rule) = @_;
    return scalar grep { $_->[0] eq $rule } @{$h->{found}};
}


# a file without its ending: the header and the code of one name are one

sub unit {
    return $_[0] =~ s/\.\w+$//r;
}


sub last_of {
    return $_[0] =~ m{([^/]+)$} ? $1 : '';
}


sub may {
    my ($from, $to) = @_;
    return $from == $to || $from->{floor} > $to->{floor};
}


# whether one is an extension's room that the other must not know

sub apart {
    my ($from, $to) = @_;

    return $from->{tree} =~ /_module$/ && $to->{tree} =~ /_module$/
           && $to->{tree} ne $from->{tree} && $to->{tree} ne 'ngx_http_kvroute_module';
}


# which room a file is in, and what it defines

sub place {
    my ($h) = @_;
    my %at;

    for my $path (sort keys %{$h->{files}}) {
        my ($folder, $file) = $path =~ m{^(.*)/([^/]+)$};

        my ($room) = grep {
            $_->{name} eq $folder
            && (!$_->{loose} || $_->{faces}{$file} || $_->{faces}{'*'})
        } @{$h->{rooms}};

        if (!$room) {
            wrong($h, 'room', $path, 'is in no room of the table');
            next;
        }

        $h->{room}{$path} = $room;
        $h->{f}{$path} = Kvroute::Source::parse($path, $h->{files}{$path});
        $h->{count}{$room}++;

        my $was = $at{"$room->{tree} $file"} //= $path;
        wrong($h, 'basename', $path, "is called as $was is") if $was ne $path;
    }

    $h->{paths} = [sort keys %{$h->{f}}];

    for my $path (@{$h->{paths}}) {
        push @{$h->{defined}{$_}}, $path for keys %{$h->{f}{$path}{defs}};

        next if $path =~ /\.c$/;
        push @{$h->{declared}{$_}}, $path for keys %{$h->{f}{$path}{protos}};

        next if $path !~ /\.h$/;
        push @{$h->{headers}{$h->{room}{$path}}}, last_of(unit($path));
    }
}


# the file that is meant by an include

sub included {
    my ($h, $path, $name) = @_;
    my ($folder) = $path =~ m{^(.*)/};
    my %tree = map { $_->{tree} => 1 } @{$h->{rooms}};

    my ($to) = grep { $h->{f}{$_} } map { "$_/$name" } $folder, sort keys %tree;
    ($to) = grep { m{/\Q$name\E$} } @{$h->{paths}} unless $to;

    return $to;
}


sub includes {
    my ($h) = @_;

    $h->{includes} = {};

    for my $path (@{$h->{paths}}) {
        my $room = $h->{room}{$path};

        for my $name (@{$h->{f}{$path}{includes}}) {
            my $to = included($h, $path, $name) or next;
            my $other = $h->{room}{$to};
            my $face = last_of($to);

            wrong($h, 'include', $path, "\"$name\" does not name its room")
                if $room->{flags}{root} && $other->{tree} eq $room->{tree}
                   && $to ne "$room->{tree}/$name";

            wrong($h, 'module', $path, "includes $to") if apart($room, $other);

            if (!may($room, $other)) {
                wrong($h, 'upward', $path, "includes $to");
                $h->{climbs}{unit($path), unit($to)} = 1;

            } elsif ($room != $other && ($to =~ /\.inc$/
                     || !$room->{flags}{inner} && !$other->{faces}{$face}
                        && !$other->{faces}{'*'}))
            {
                wrong($h, 'face', $path, "includes $to, which is not a face");
            }

            # a fragment is part of who includes it

            my $how = $to =~ /\.inc$/ ? 'fragments' : 'includes';
            $h->{$how}{$path}{$to} = 1;
        }
    }

    $h->{reach} = { map { $_ => reach($_, $h->{includes}) } @{$h->{paths}} };
}


# the file that is meant by a name; nobody's, if it is of another program

sub meant {
    my ($h, $path, $name) = @_;
    my $room = $h->{room}{$path};
    my @to = @{$h->{defined}{$name}};

    my @own = grep { $h->{room}{$_} == $room } @to;
    return $own[0] if @own;

    @to = grep { may($room, $h->{room}{$_}) } @to if @to > 1;

    return unless @to;
    return $to[0] if $h->{room}{$to[0]}{tree} eq $room->{tree};

    return (grep { $h->{f}{$_}{protos}{$name} || $h->{f}{$_}{defs}{$name} }
            keys %{$h->{reach}{$path}}) ? $to[0] : undef;
}


# who uses what another has defined

sub uses {
    my ($h) = @_;
    my %sequence = map { $_ => 1 } @{$h->{sequence}};

    $h->{calls} = {};
    $h->{copies} = {};

    for my $path (grep { !/\.inc$/ } @{$h->{paths}}) {
        my ($p, $room) = ($h->{f}{$path}, $h->{room}{$path});

        my %words = map { %{$h->{f}{$_}{words}} }
                    $path, keys %{$h->{fragments}{$path} || {}};

        for my $name (grep { $h->{defined}{$_} && $_ ne 'main' } keys %words) {
            next if grep { $p->{$_}{$name} } qw(static defs protos);

            my $to = meant($h, $path, $name) or next;
            my ($a, $b) = (unit($path), unit($to));

            $h->{calls}{$a}{$b}{$name} = [$path, $to] if $a ne $b;

            $h->{copies}{$room->{name}}{$name} = 1
                if $sequence{$name} && $h->{room}{$to} != $room
                   && $room->{name} ne $h->{home} && !$room->{flags}{inner};
        }
    }

    for my $a (sort keys %{$h->{calls}}) {
        for my $b (sort keys %{$h->{calls}{$a}}) {
            my @names = sort keys %{$h->{calls}{$a}{$b}};
            my ($from, $to) = @{$h->{calls}{$a}{$b}{$names[0]}};

            wrong($h, 'module', $from, "uses $to: " . join ', ', @names)
                if apart(@{$h->{room}}{$from, $to});

            wrong($h, 'upward', $from, "uses $to: " . join ', ', @names)
                unless may(@{$h->{room}}{$from, $to}) || $h->{climbs}{$a, $b};
        }
    }

    wrong($h, 'sequence', $_, 'is nowhere defined')
        for grep { !$h->{defined}{$_} } sort keys %sequence;
    wrong($h, 'sequence', $_, 'has its own: '
                              . join ', ', sort keys %{$h->{copies}{$_}})
        for sort keys %{$h->{copies}};
}


sub circular {
    my ($h) = @_;

    for (circles($h->{includes}), circles($h->{calls})) {
        my @in = @$_;
        my @text = 'of ' . @in . ': ' . join ' ', map { last_of($_) } @in;

        for my $a (@in) {
            my $calls = $h->{calls}{$a} || {};

            push @text, sprintf '    %s -> %s (%s)', last_of($a), last_of($_),
                                join ', ', sort keys %{$calls->{$_}}
                for grep { $calls->{$_} } @in;
        }

        wrong($h, 'circle', $in[0], join "\n", @text);
    }
}


# The headers of a room that a file belongs to: the one of its name, and those of
# which its name is a longer one, as kvr_index_line.c is a part of kvr_index.h.

sub family {
    my ($h, $path) = @_;
    my $base = last_of(unit($path));

    return grep { $base eq $_ || index($base, "${_}_") == 0 }
           @{$h->{headers}{$h->{room}{$path}} || []};
}


# names, and the headers they stand in

sub exported {
    my ($h) = @_;

    # tests are programs of their own

    for my $path (grep { !/_test\.c$/ } @{$h->{paths}}) {
        my ($p, $room) = ($h->{f}{$path}, $h->{room}{$path});
        my $base = last_of(unit($path));
        my %family = map { $_ => 1 } $base, family($h, $path);

        my ($project, $rest) = $base =~ /^(ngx_http_kvroute|[a-z]+)_?(.*)/;
        my @words = split /_/, $rest;
        my @short = map { join '_', $project, @words[$_ .. $#words] } 1 .. $#words;

        my $names = join '|', map({ "\Q$_\E" } @{$room->{prefix}}),
                    map { "\Q$_\E(?![a-zA-Z0-9])" } sort(keys %family), @short;

        for my $name (grep { $_ ne 'main' } sort keys %{$p->{defs}}) {

            # a fragment's is given by who includes it

            next if $path =~ /\.inc$/ && $name =~ /^[A-Z]/;

            my $where = "$path:$p->{defs}{$name}{line}";

            wrong($h, 'name', $where,
                  "$name begins neither as its file nor as its room")
                unless $name =~ /^(?:$names)/;

            next if $path !~ /\.c$/;

            my @headers = grep { $h->{room}{$_}{tree} eq $room->{tree} }
                          @{$h->{declared}{$name} || []};

            wrong($h, 'header', $where, "$name is in no header") unless @headers;

            for my $header (@headers) {
                next if $h->{room}{$header} == $room
                        && $family{last_of(unit($header))};

                wrong($h, 'header', $header, "has $name, which is of $path")
                    unless $h->{room}{$header} == $room
                           && ($header =~ /_int\.h$/ || $room->{faces}{'*'}
                               || $room->{faces}{last_of($header)});
            }
        }

        for my $name (sort keys %{$p->{protos}}) {
            my $where = "$path:$p->{protos}{$name}";

            wrong($h, 'header', $where, "$name: a prototype amid code")
                if $path =~ /\.c$/ && !$p->{defs}{$name} && !$p->{static}{$name};
            wrong($h, 'header', $where, "$name is nowhere defined")
                if $path !~ /\.c$/ && !$h->{defined}{$name} && $name !~ /_module$/;
        }
    }
}


sub core {
    my ($h) = @_;

    for my $path (grep { $h->{room}{$_}{flags}{core} } @{$h->{paths}}) {
        my $p = $h->{f}{$path};
        my @nginx = grep { /^ngx_/ } sort keys %{$p->{words}};

        wrong($h, 'nginx', $path, join ', ', @nginx) if @nginx;
        wrong($h, 'libc', $path, join ', ', @{$p->{libc}}) if @{$p->{libc}};
        wrong($h, 'static', "$path:$_->[0]", "$_->[1] is not constant")
            for @{$p->{mutable}};
    }
}


# arrays that an enum counts

sub counted {
    my ($h) = @_;
    my (%values, %enum_of, %member, %indexing, @asserts);

    for my $path (@{$h->{paths}}) {
        my $p = $h->{f}{$path};

        %values = (%values, %{$p->{enums}});
        %member = (%member, %{$p->{members}}) if %{$p->{members}};

        push @asserts, @{$p->{asserts}};
        push @{$indexing{$_}}, $path for keys %{$p->{index}};
    }

    for my $type (keys %values) {
        $enum_of{$_} = $type for @{$values{$type}};
    }

    for my $path (@{$h->{paths}}) {
        for my $array (@{$h->{f}{$path}{arrays}}) {
            my ($name, $size) = @$array{qw(name size)};
            my ($by) = grep { $_ } map { $enum_of{$_} } $size =~ /([A-Za-z_]\w*)/g;

            if ($by) {
                wrong($h, 'enum', $path, "$name: leave its size to what it lists, "
                                         . "and assert it ($by)")
                    if $array->{init};
                next;
            }

            # a file that has an array of this name itself means that one

            my @index = map { keys %{$h->{f}{$_}{index}{$name}} }
                        grep { $_ eq $path || $h->{reach}{$_}{$path}
                               && !grep { $_->{name} eq $name }
                                        @{$h->{f}{$_}{arrays}} }
                        @{$indexing{$name} || []};

            ($by) = grep { $_ && $values{$_} }
                    map { $values{$_} ? $_ : $member{$_} // $enum_of{$_} } sort @index;

            next unless $by;

            my $of = join '|', @{$values{$by}};
            my $is = $size =~ /^[A-Z]\w+$/ ? "$name|$size" : $name;

            wrong($h, 'enum', $path,
                  "$name\[$size]: no _Static_assert of its size ($by)")
                unless grep { /\b(?:$of)\b/ && /\b(?:$is)\b/ } @asserts;
        }
    }
}


sub sizes {
    my ($h) = @_;

    for my $path (grep { !/_test\.c$/ } @{$h->{paths}}) {
        my $n = $h->{f}{$path}{lines};
        wrong($h, 'lines', $path, "$n lines") if $n > 700;
    }

    for my $room (@{$h->{rooms}}) {
        my $n = $h->{count}{$room} // 0;

        for my $face (grep { $_ ne '*' } sort keys %{$room->{faces}}) {
            wrong($h, 'room', $room->{name}, "$face is not there")
                unless $h->{f}{"$room->{name}/$face"};
        }

        wrong($h, 'room', $room->{name}, "has $n files, not 4 to 14")
            if ($n < 4 || $n > 14) && !$room->{loose} && !$room->{flags}{any};
    }
}


# A table of the rooms as text, and the figures as JSON in a file.

sub report {
    my ($h, $json) = @_;
    my (%lines, %upward);
    my %total = (core => 0, glue => 0);

    for my $path (@{$h->{paths}}) {
        my $room = $h->{room}{$path};

        $lines{$room} += $h->{f}{$path}{lines};
        $total{$room->{flags}{core} ? 'core' : 'glue'} += $h->{f}{$path}{lines}
            if $room->{tree} =~ /_module$/;
    }

    $upward{$h->{room}{$_->[1]}}++
        for grep { $_->[0] eq 'upward' } @{$h->{found}};

    my @used = grep { $h->{count}{$_} } @{$h->{rooms}};

    printf "%-5s %-44s %5s %6s %7s\n", qw(floor room files lines upward);
    printf "%5d %-44s %5d %6d %7d\n", $_->{floor}, $_->{name},
           $h->{count}{$_}, $lines{$_}, $upward{$_} // 0
        for @used;

    print "$_->[0]: $_->[1]: $_->[2]\n" for @{$h->{found}};

    my $text = sprintf '{"rooms":%d,"files":%d,"lines":{"core":%d,"glue":%d},'
                       . '"upward":%d,"circles":%d,"over_700":%d,'
                       . '"sequence_copies":%d}',
                       scalar @used, scalar @{$h->{paths}}, @total{qw(core glue)},
                       map({ many($h, $_) } qw(upward circle lines)),
                       scalar keys %{$h->{copies}};

    print "$text\n";

    open my $fh, '>', $json or die "$json: $!";
    print $fh "$text\n";
    close $fh;
}


1;

-- Tables are cleared alone, with their sequences, together, twice in one statement, with those that refer to them, and beside one that nobody follows.
-- replicate one
-- replicate inserted insert_only
-- replicate parent
-- replicate child
-- setup
CREATE TABLE one (id serial PRIMARY KEY, v text);
CREATE TABLE inserted (v int);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent);
CREATE TABLE nobodys (id int PRIMARY KEY);
INSERT INTO one (v) VALUES ('a'), ('b');
INSERT INTO inserted VALUES (1), (2), (3);
INSERT INTO parent VALUES (1), (2);
INSERT INTO child VALUES (11, 1), (22, 2);
-- workload
TRUNCATE one;
-- session compare
the table is empty
-- session a
INSERT INTO one (v) VALUES ('c');

TRUNCATE one RESTART IDENTITY;
INSERT INTO one (v) VALUES ('first again');

TRUNCATE inserted;
INSERT INTO inserted VALUES (4);
-- session compare
what came behind stays
-- session a
TRUNCATE parent, child;

INSERT INTO parent VALUES (3);
INSERT INTO child VALUES (33, 3);
-- wait
TRUNCATE one, one, nobodys RESTART IDENTITY CASCADE;

INSERT INTO nobodys VALUES (1);
INSERT INTO one (v) VALUES ('left');

TRUNCATE parent CASCADE;
-- session compare
those that refer to it are empty, too
-- session a
INSERT INTO parent VALUES (4);
INSERT INTO child VALUES (44, 4);

TRUNCATE nobodys, child;

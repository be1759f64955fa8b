-- Texts that differ in bytes and are equal by their collation, as keys and where whole rows identify.
-- replicate keyed
-- replicate whole
-- setup
CREATE COLLATION loose (provider = icu, locale = 'und', deterministic = false);
CREATE TABLE keyed (a text COLLATE loose PRIMARY KEY, b text);
CREATE TABLE whole (a text COLLATE loose, b text);
ALTER TABLE whole REPLICA IDENTITY FULL;
INSERT INTO keyed VALUES (U&'\00E4bc', 'foo'), ('x', 'y');
INSERT INTO whole VALUES (U&'\00E4bc', 'foo'), (U&'\0061\0308bc', 'foo');
-- workload
UPDATE keyed SET b = 'bar' WHERE b = 'foo';
UPDATE whole SET b = 'bar' WHERE b = 'foo';
-- session compare
found by what they are
-- session a
UPDATE keyed SET a = U&'\0061\0308bc' WHERE b = 'bar';
DELETE FROM whole WHERE ctid = (SELECT max(ctid) FROM whole);
-- wait
UPDATE keyed SET b = 'baz' WHERE a = U&'\00E4bc';
UPDATE whole SET a = U&'\0061\0308bc';

-- replicate sparse
-- setup
CREATE TABLE sparse (id int PRIMARY KEY, a text, b numeric(8, 2), c timestamptz, d bytea, e boolean, f uuid);
INSERT INTO sparse VALUES (1, NULL, NULL, NULL, NULL, NULL, NULL), (2, '', 0, 'epoch', '', false, gen_random_uuid());
-- workload
INSERT INTO sparse (id) VALUES (3);

UPDATE sparse SET a = '', b = 1, c = '2020-01-01+00', d = '\x00', e = true, f = gen_random_uuid() WHERE id = 1;

UPDATE sparse SET a = NULL, b = NULL, c = NULL, d = NULL, e = NULL, f = NULL WHERE id = 2;

INSERT INTO sparse (id, a) VALUES (4, 'NULL'), (5, '\N'), (6, E'\\N'), (7, E'tab\there\nline\\end');

//! proposal

"""Programs as terms: conversion from programs, and back to functions."""
